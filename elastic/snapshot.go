package elastic

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"runtime"
	"sync"
)

// leafBytes is the piece in which snapshots are hashed and sent: small enough that hashing one overlaps with receiving
// the next, large enough that the messages cost nothing.
const leafBytes = 1 << 20

// digest names a snapshot: SHA-256 over its meta and the marks of its leaves.
type digest [sha256.Size]byte

func (d digest) String() string { return hex.EncodeToString(d[:]) }

func (d digest) compare(o digest) int { return bytes.Compare(d[:], o[:]) }

// snapshot is a commit: a copy of the state. Once it is on the shelf its content does not change while anybody reads it.
type snapshot struct {
	generation, step uint64
	tentative        bool     // nobody has agreed on it: the start of a worker that holds no commit
	meta             []byte   // JSON
	data             []byte   // tensors, one after the other, in the byte order of the machine
	pieces           []*piece // by leaf; commits share those of leaves that are equal
}

// piece is the hash of a leaf, computed when somebody needs it first, also by several goroutines at a time.
type piece struct {
	once sync.Once
	mark mark
}

func newSnapshot(size int) *snapshot {
	s := &snapshot{data: make([]byte, size), pieces: make([]*piece, leaves(size))}
	s.forget()
	return s
}

// forget makes the snapshot one that nothing is known of.
func (s *snapshot) forget() {
	s.tentative = false
	for i := range s.pieces {
		s.pieces[i] = new(piece)
	}
}

// piece returns the hash of leaf i.
func (s *snapshot) piece(i int) mark {
	p := s.pieces[i]
	p.once.Do(func() { p.mark = markOf(leaf(s.data, i)) })
	return p.mark
}

// know notes the hash of a leaf that was checked while it arrived.
func (s *snapshot) know(i int, m mark) {
	p := &piece{mark: m}
	p.once.Do(func() {})
	s.pieces[i] = p
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
func (s *snapshot) digest() digest {
	var wait sync.WaitGroup
	workers := min(runtime.GOMAXPROCS(0), len(s.pieces))
	for w := range workers {
		wait.Go(func() {
			for i := w; i < len(s.pieces); i += workers {
				s.piece(i)
			}
		})
	}
	wait.Wait()
	return root(s.meta, s.marks())
}

// marks are those of all leaves.
func (s *snapshot) marks() []mark {
	all := make([]mark, len(s.pieces))
	for i := range all {
		all[i] = s.piece(i)
	}
	return all
}

// layout is the hash of what is registered: names, types and sizes, in order, and the kind of marks. Members must agree on it.
func (s *State) layout() digest {
	h := sha256.New()
	fmt.Fprintf(h, "marks %x\n", markOf([]byte("of the same kind")))
	for _, t := range s.tensors {
		fmt.Fprintf(h, "tensor %q %s %d\n", t.name, t.kind, len(t.memory))
	}
	for _, o := range s.objects {
		fmt.Fprintf(h, "object %q\n", o.name)
	}
	fmt.Fprintf(h, "data %d %d\n", s.sampler.samples, s.sampler.seed)
	return digest(h.Sum(nil))
}

// offer is what a member brings to a sync: the commit that it holds, or the state it would start from.
type offer struct {
	holds            bool
	generation, step uint64
	metaBytes        uint64
	hash, layout     digest
}

const offerBytes = 1 + 3*8 + 2*sha256.Size

func (o offer) encode() []byte {
	b := make([]byte, 0, offerBytes)
	b = append(b, 0)
	if o.holds {
		b[0] = 1
	}
	b = binary.LittleEndian.AppendUint64(b, o.generation)
	b = binary.LittleEndian.AppendUint64(b, o.step)
	b = binary.LittleEndian.AppendUint64(b, o.metaBytes)
	b = append(b, o.hash[:]...)
	return append(b, o.layout[:]...)
}

func decodeOffer(b []byte) (offer, error) {
	if len(b) != offerBytes {
		return offer{}, fmt.Errorf("sync: an offer of %d bytes: do all workers run the same version?", len(b))
	}
	o := offer{
		holds: b[0] == 1, generation: binary.LittleEndian.Uint64(b[1:]), step: binary.LittleEndian.Uint64(b[9:]),
		metaBytes: binary.LittleEndian.Uint64(b[17:]),
	}
	copy(o.hash[:], b[25:])
	copy(o.layout[:], b[25+sha256.Size:])
	return o, nil
}

// newer orders offers: a held commit before none, then by generation and step, then the lowest hash, so that all
// members choose the same whatever the cause of a difference.
func newer(a, b offer) bool {
	if a.holds != b.holds {
		return a.holds
	}
	if !a.holds {
		return false // nobody holds anything: the first rank's start is as good as any
	}
	return cmp.Or(cmp.Compare(b.generation, a.generation), cmp.Compare(b.step, a.step), a.hash.compare(b.hash)) < 0
}
