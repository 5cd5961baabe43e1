package statesync

import (
	"log/slog"
	"time"

	"github.com/regroup-io/regroup/elastic/checkpoint"
)

// Config is what the package cannot know about a state.
type Config struct {
	// Layout returns the hash of what is registered. Members with different layouts refuse to sync.
	Layout func() Digest
	// Resume returns the metadata with which a run continues from a checkpoint, and the step in it.
	Resume func(n checkpoint.Name, meta []byte) (resumed []byte, step uint64, err error)
}

// Replica is one worker's copy of the state. Except for its CommitStore it belongs to one goroutine
// at a time.
type Replica struct {
	Tensors Tensors
	config  Config
	store   *CommitStore

	newest      *Snapshot   // the newest that has a copy; nil before the first commit or initial state
	live        *liveCommit // newer than newest; nil = none
	rest        []byte      // the tensors of live that are not live
	last        Commit      // see Last
	copied      time.Time   // when newest was made
	copyTook    time.Duration
	hashed      bool      // the digest of newest was computed
	unapplied   bool      // newest was prefetched and is not in the tensors yet
	spare       *Snapshot // the buffer for the next commit; nil = see buffer
	partial     *partialSnapshot
	checkpoints *checkpoints     // nil = none
	copyNext    bool             // see Verification.CopyNext
	bound       Commit           // see Verification.Distrust; zero = none
	resumed     *checkpoint.Name // the checkpoint with which the generation began; nil = none
}

// partialSnapshot is the result of a prefetch that did not reach the last commit of its generation.
type partialSnapshot struct {
	snapshot *Snapshot
	hashes   []chunkHash // of its chunks
}

// NewReplica returns a replica without tensors.
func NewReplica(c Config) *Replica {
	return &Replica{config: c, store: &CommitStore{pins: map[*Snapshot]int{}, changed: make(chan struct{})}}
}

// Store returns the store with the newest commit. It may be used by any goroutine.
func (r *Replica) Store() *CommitStore { return r.store }

// Newest returns the newest commit that is a copy, or the initial state; nil before the first of
// them.
func (r *Replica) Newest() *Snapshot { return r.newest }

// Meta returns the metadata of the newest commit, or of the initial state.
func (r *Replica) Meta() []byte {
	if r.live != nil {
		return r.live.meta
	}
	return r.newest.meta
}

// Commit makes the current content of the tensors the newest commit. It costs one pass over them;
// the hashes are computed when they are needed.
func (r *Replica) Commit(meta []byte, generation, step uint64) {
	r.record(meta, generation, step, false)
}

// Begin records the current content of the tensors as the initial state, which counts if no member
// has a commit.
func (r *Replica) Begin(meta []byte, step uint64) { r.record(meta, 0, step, true) }

func (r *Replica) record(meta []byte, generation, step uint64, tentative bool) {
	s := r.buffer()
	s.reset()
	s.meta, s.generation, s.step, s.tentative = meta, generation, step, tentative
	began := time.Now()
	r.Tensors.packAll(s.data)
	r.copied = time.Now()
	s.made = r.copied
	r.copyTook, r.copyNext = r.copied.Sub(began), false
	r.adopt(s)
}

// Restore copies the newest commit to the tensors.
func (r *Replica) Restore() {
	if r.live != nil {
		r.takeLive()
		return
	}
	r.Tensors.unpackAll(r.newest.data)
	r.last = Commit{r.newest.generation, r.newest.step}
}

// Step is the step of the newest commit, or of the initial state.
func (r *Replica) Step() uint64 {
	if r.live != nil {
		return r.live.step
	}
	return r.newest.step
}

// Committed describes the newest commit. The digest is empty until a sync needed it.
func (r *Replica) Committed() (generation, step uint64, digest string, ok bool) {
	if r.live != nil {
		return r.live.generation, r.live.step, "", true
	}
	if r.newest == nil || r.newest.tentative {
		return 0, 0, "", false
	}
	if r.hashed {
		digest = r.newest.Digest().String()
	}
	return r.newest.generation, r.newest.step, digest, true
}

// KeepTwo makes the replica keep the commit before the newest one too.
func (r *Replica) KeepTwo() { r.store.keepTwo() }

// Commits names the commits that are kept, the newest first.
func (r *Replica) Commits() []Commit {
	var names []Commit
	for _, s := range r.store.commits() {
		generation, step := r.store.Version(s)
		names = append(names, Commit{generation, step})
	}
	return names
}

// MadeAt is when this worker made a commit that it keeps; zero = it has received it, or read it
// from a checkpoint.
func (r *Replica) MadeAt(c Commit) time.Time {
	if l := r.live; l != nil && c == (Commit{l.generation, l.step}) {
		return l.made
	}
	for _, s := range r.store.commits() {
		if generation, step := r.store.Version(s); c == (Commit{generation, step}) {
			return s.made
		}
	}
	return time.Time{}
}

// ReturnTo forgets commits that are newer than one.
func (r *Replica) ReturnTo(c Commit) {
	for _, s := range r.store.commits() {
		generation, step := r.store.Version(s)
		if (Commit{generation, step}).Compare(c) <= 0 {
			return
		}
		r.newest, r.hashed, r.unapplied = r.store.forget(), false, true
	}
}

// HashCommit computes the digest of the newest commit, which the next sync will need.
func (r *Replica) HashCommit() {
	r.takeLive()
	if r.newest != nil && !r.newest.tentative {
		r.digest()
	}
}

// PrepareSync does the part of the first sync that no other member should wait for, in the
// background: it hashes the initial state and allocates the memory to receive into. The result is
// closed when it is done; until then the replica must not be used.
func (r *Replica) PrepareSync() (done <-chan struct{}) {
	initial, spare, prepared := r.newest, r.buffer(), make(chan struct{})
	go func() {
		defer close(prepared)
		spare.preallocate()
		initial.Digest()
	}()
	return prepared
}

// Resumed returns the checkpoint with which the current generation began; nil = none.
func (r *Replica) Resumed() *checkpoint.Name { return r.resumed }

// UseCheckpoints makes the replica begin with the newest checkpoint of a directory that is intact,
// if no member has a commit. It returns the name of the newest one, intact or not; ok is false if
// there is none. One of another program, or that another user may have written, is passed over with
// skip, else it is the error of the first sync.
func (r *Replica) UseCheckpoints(dir *checkpoint.Dir, skip bool, log *slog.Logger) (newest checkpoint.Name, ok bool, err error) {
	names, err := dir.List()
	if err != nil {
		return newest, false, err
	}
	r.checkpoints = &checkpoints{dir: dir, skip: skip, log: log, untried: names}
	if len(names) == 0 {
		return newest, false, nil
	}
	return names[0], true, nil
}

// buffer returns a snapshot that may be overwritten.
func (r *Replica) buffer() *Snapshot {
	if r.spare == nil {
		r.spare = r.store.take()
	}
	if r.spare == nil {
		r.spare = newSnapshot(r.Tensors.size)
	}
	return r.spare
}

func (r *Replica) adopt(s *Snapshot) {
	if s == r.spare {
		r.spare = nil
	}
	r.newest, r.hashed, r.live = s, false, nil
	r.last = Commit{s.generation, s.step}
	r.store.put(s)
}

func (r *Replica) digest() Digest {
	r.hashed = true
	return r.newest.Digest()
}
