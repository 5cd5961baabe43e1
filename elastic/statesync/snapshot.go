package statesync

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/regroup-io/regroup/elastic/internal/pages"
)

// Commit is the name of a commit: the generation that made it, and the training step in it.
type Commit struct{ Generation, Step uint64 }

// Compare orders commits from old to new.
func (c Commit) Compare(o Commit) int {
	return cmp.Or(cmp.Compare(c.Generation, o.Generation), cmp.Compare(c.Step, o.Step))
}

func (c Commit) String() string { return fmt.Sprintf("g%d at step %d", c.Generation, c.Step) }

// Snapshot is a copy of the state. Once it is in a CommitStore its content does not change while it
// is pinned.
type Snapshot struct {
	generation, step uint64
	made             time.Time  // zero = this worker has received it
	tentative        bool       // an initial state: no generation has agreed on it
	meta             []byte     // everything that is not a tensor, in the encoding of the caller
	data             []byte     // the tensors, concatenated, in the byte order of the machine
	hashes           []lazyHash // by chunk
}

// lazyHash is a chunk hash that is computed on first use, possibly by several goroutines at a time.
// Most commits are replaced before their hashes are needed.
type lazyHash struct {
	once sync.Once
	hash chunkHash
}

func newSnapshot(size int) *Snapshot {
	s := &Snapshot{data: make([]byte, size)}
	pages.Advise(s.data)
	s.reset()
	return s
}

// Meta returns the metadata that was committed.
func (s *Snapshot) Meta() []byte { return s.meta }

// Data returns the tensors, concatenated.
func (s *Snapshot) Data() []byte { return s.data }

// Step returns the training step of the snapshot.
func (s *Snapshot) Step() uint64 { return s.step }

// Digest identifies the content of the snapshot. Chunk hashes that are not known yet are computed
// on all cores.
func (s *Snapshot) Digest() Digest { return digestOf(s.meta, s.allHashes()) }

// preallocate makes the memory of a new snapshot resident.
func (s *Snapshot) preallocate() {
	for i := 0; i < len(s.data); i += 4096 {
		s.data[i] = 1
	}
}

func (s *Snapshot) reset() {
	s.tentative, s.made = false, time.Time{}
	s.hashes = make([]lazyHash, chunkCount(len(s.data)))
}

func (s *Snapshot) hash(i int) chunkHash {
	h := &s.hashes[i]
	h.once.Do(func() { h.hash = hashOf(chunk(s.data, i)) })
	return h.hash
}

// setHash records the hash of a chunk that was verified on arrival, unless its hash is known
// already.
func (s *Snapshot) setHash(i int, hash chunkHash) {
	h := &s.hashes[i]
	h.once.Do(func() { h.hash = hash })
}

func (s *Snapshot) allHashes() []chunkHash {
	all := make([]chunkHash, len(s.hashes))
	inParallel(len(s.data), func(lo, hi int) {
		for i := lo / ChunkBytes; i < chunkCount(hi); i++ {
			all[i] = s.hash(i)
		}
	})
	return all
}
