package elastic

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
)

// leafBytes is the piece in which snapshots are hashed and sent: small enough that what was received is still in the cache
// when it is hashed and copied, large enough that the messages cost nothing.
const leafBytes = 1 << 20

// digest names a snapshot: SHA-256 over its meta and the marks of its leaves.
type digest [sha256.Size]byte

func (d digest) String() string { return hex.EncodeToString(d[:]) }

func (d digest) compare(o digest) int { return bytes.Compare(d[:], o[:]) }

// snapshot is a commit: a copy of the state. Once it is on the shelf its content does not change while anybody reads it.
type snapshot struct {
	generation, step uint64
	tentative        bool    // nobody has agreed on it: the start of a worker that holds no commit
	meta             []byte  // see there
	data             []byte  // tensors, one after the other, in the byte order of the machine
	pieces           []piece // by leaf
}

// piece is the hash of a leaf, computed when somebody needs it first, also by several goroutines at a time. Most commits are
// replaced before anybody does.
type piece struct {
	once sync.Once
	mark mark
}

func newSnapshot(size int) *snapshot {
	s := &snapshot{data: make([]byte, size)}
	s.forget()
	return s
}

// touch has the system provide the memory of a new snapshot.
func (s *snapshot) touch() {
	for i := 0; i < len(s.data); i += 4096 {
		s.data[i] = 1
	}
}

// forget makes the snapshot one that nothing is known of.
func (s *snapshot) forget() {
	s.tentative = false
	s.pieces = make([]piece, leaves(len(s.data)))
}

// piece returns the hash of leaf i.
func (s *snapshot) piece(i int) mark {
	p := &s.pieces[i]
	p.once.Do(func() { p.mark = markOf(leaf(s.data, i)) })
	return p.mark
}

// know notes the hash of a leaf that was checked while it arrived, of which nothing was known.
func (s *snapshot) know(i int, m mark) {
	p := &s.pieces[i]
	p.once.Do(func() { p.mark = m })
}

func leaves(size int) int { return (size + leafBytes - 1) / leafBytes }

// leaf returns the i-th piece of data.
func leaf(data []byte, i int) []byte { return data[i*leafBytes : min((i+1)*leafBytes, len(data))] }

// root combines the hash of meta and those of the pieces.
func root(meta []byte, pieces []mark) digest {
	h := sha256.New()
	m := sha256.Sum256(meta)
	h.Write(m[:])
	for i := range pieces {
		h.Write(pieces[i][:])
	}
	return digest(h.Sum(nil))
}

// digest returns the name of the snapshot's content; what is not known yet is computed on all cores.
func (s *snapshot) digest() digest { return root(s.meta, s.marks()) }

// marks are those of all leaves.
func (s *snapshot) marks() []mark {
	all := make([]mark, len(s.pieces))
	inStrides(len(s.data), func(lo, hi int) {
		for i := lo / leafBytes; i < leaves(hi); i++ {
			all[i] = s.piece(i)
		}
	})
	return all
}

// layout is the hash of what is registered: names, types and sizes, in order, and the kind of marks. Members must agree on it.
func (s *State) layout() digest {
	h := sha256.New()
	fmt.Fprintf(h, "marks %x\n", markOf([]byte("of the same kind")))
	for _, t := range s.tensors {
		fmt.Fprintf(h, "tensor %q %s %d\n", t.name, t.kind, len(t.memory))
	}
	for _, v := range s.values {
		fmt.Fprintf(h, "value %q\n", v.name)
	}
	fmt.Fprintf(h, "data %d %d\n", s.sampler.samples, s.sampler.seed)
	if e := s.elastic; e != nil {
		fmt.Fprintf(h, "elastic data %d %d\n", e.samples, e.seed)
	}
	return digest(h.Sum(nil))
}
