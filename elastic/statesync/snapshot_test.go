package statesync

import "testing"

func TestDigestDependsOnEveryByte(t *testing.T) {
	r := newTestReplica()
	r.Tensors.Add("a", "uint8", make([]byte, 3<<20+5))
	r.Tensors.Add("b", "uint8", make([]byte, 7))
	r.Commit(testMeta(1), 1, 1)
	s := r.Newest()
	was := s.Digest()
	for _, at := range []int{0, ChunkBytes - 1, ChunkBytes, 2*ChunkBytes + 17, len(s.data) - 1} {
		s.reset()
		s.data[at] ^= 1
		if s.Digest() == was {
			t.Errorf("byte %d does not matter", at)
		}
		s.data[at] ^= 1
	}
	s.reset()
	s.meta[1] ^= 1
	if s.Digest() == was {
		t.Error("the metadata does not matter")
	}
}
