package frame

import (
	"bytes"
	"testing"

	"github.com/regroup-io/regroup/collective/kernel"
)

func FuzzHeader(f *testing.F) {
	var b [HeaderLen]byte
	Header{Kind: Data, Op: Descriptor{Method: Allreduce, Type: kernel.Float32, Count: 9, Seq: 3}, Length: 36}.Put(b[:])
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) < HeaderLen {
			return
		}
		h, err := Parse(p)
		if err != nil {
			return
		}
		_ = h.Op.String()
		var again [HeaderLen]byte
		h.Put(again[:])
		if !bytes.Equal(again[:], p[:HeaderLen]) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", p[:HeaderLen], h, again)
		}
	})
}
