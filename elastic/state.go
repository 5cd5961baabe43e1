package elastic

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"unsafe"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/checkpoint"
	"github.com/regroup-io/regroup/elastic/internal/metadata"
	"github.com/regroup-io/regroup/elastic/samples"
	"github.com/regroup-io/regroup/elastic/shards"
	"github.com/regroup-io/regroup/elastic/statesync"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// Element is what a tensor can be made of: numbers without pointers, so that a commit is a plain
// copy of memory.
type Element interface {
	~float32 | ~float64 | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// State is everything that a worker must be able to return to: tensors, other values, the step, the
// position in the data and the ledger of consumed samples. They are one unit: committed, restored
// and sent together, or not at all.
//
// Register everything before Run, in the same way on every worker. After each step the registered
// values must be the same on all ranks: a value that differs on one rank is replaced by another
// rank's when the members regroup. A State belongs to one goroutine.
type State struct {
	sampler *samples.Sampler
	elastic *samples.ElasticSampler // used instead of sampler; nil = none
	run     uint64                  // of the job, see checkpoint.Name
	step    uint64
	ledger  workerprotocol.Ledger
	values  []value
	resets  []func(ctx context.Context, s *Session, before Membership) error
	err     error // the first wrong registration; Run returns it
	replica *statesync.Replica
	shards  *shards.State                         // nil = the state is not sharded
	arrange func(context.Context, *Session) error // see Sharding

	recording bool                  // see Recording
	unmerged  workerprotocol.Ledger // what this rank has recorded since the last commit
}

type value struct {
	name string
	Handler
}

// NewState returns a state that reads its data in the order of sampler; nil = a program without a
// data set.
func NewState(sampler *samples.Sampler) *State {
	if sampler == nil {
		sampler = samples.NewSampler(0, 0)
	}
	s := &State{sampler: sampler, run: 1, ledger: workerprotocol.Ledger{Samples: sampler.Samples()}}
	s.replica = statesync.NewReplica(statesync.Config{Layout: s.layout, Resume: metadata.Resume})
	return s
}

// SetSampler replaces the sampler, while the state is being registered.
func (s *State) SetSampler(sampler *samples.Sampler) {
	s.sampler, s.ledger.Samples = sampler, sampler.Samples()
}

// SetElasticSampler makes the state read its data with an ElasticSampler.
func (s *State) SetElasticSampler(sampler *samples.ElasticSampler) {
	if sampler == nil || s.elastic != nil || s.sampler.Samples() > 0 {
		s.err = errors.Join(s.err, errors.New("a state has one sampler"))
		return
	}
	s.elastic, s.ledger.Samples = sampler, sampler.Samples()
}

// Tensor makes the elements of t part of the state under a name. Restoring writes into t, so the
// program must keep using this slice and not another one. Its length is fixed: members agree on it
// before anything is sent. A value that grows is registered with State.Handle.
func Tensor[T Element](s *State, name string, t []T) {
	s.reserve(name)
	var zero T
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(t))), len(t)*int(unsafe.Sizeof(zero)))
	s.replica.Tensors.Add(name, fmt.Sprintf("%T", zero), b)
}

// Live marks a tensor as one that changes only from Session.Changed, AverageGradients or Consume
// until the next commit, like weights that only an optimizer changes. Session.CommitLive does not
// copy it. For parts of a sharded state there is Session.Live.
func (s *State) Live(name string) {
	if !s.replica.SetLive(name) {
		s.err = errors.Join(s.err, fmt.Errorf("live tensor %q is not registered", name))
	}
}

// reserve reports a name that is registered twice.
func (s *State) reserve(name string) {
	if slices.ContainsFunc(s.replica.Tensors.All(), func(t statesync.Tensor) bool { return t.Name == name }) ||
		slices.ContainsFunc(s.values, func(v value) bool { return v.name == name }) {
		s.err = errors.Join(s.err, fmt.Errorf("%q is registered twice", name))
	}
}

// OnReset registers a function that is called at the start of every generation except the first of
// a job that begins anew: on all members, in the order of registration, after the sync and before
// the training function. before is the worker's membership in its previous generation; a newcomer
// had none, and its Generation is 0. f may use collectives. Its errors count as errors of the
// training function.
//
// f must compute what it changes from the state and the world, so that all members get the same
// result, even if f is called once more because a generation ended before its first commit: rate =
// base * world, never rate *= world / before.
//
// In Horovod such callbacks run before the sync, which overwrites what they change in the state,
// and on survivors only, so that a newcomer would differ. A program that wants the latter checks
// before.
func (s *State) OnReset(f func(ctx context.Context, s *Session, before Membership) error) {
	s.resets = append(s.resets, f)
}

// Step is the number of steps in this state.
func (s *State) Step() uint64 { return s.step }

// Cursor is the position in the data; with an ElasticSampler, the epoch and the number of its
// samples that were consumed as of the last commit.
func (s *State) Cursor() samples.Cursor {
	if e := s.elastic; e != nil {
		return samples.Cursor{Epoch: e.Epoch(), Position: e.StateDict().Count()}
	}
	return s.sampler.Cursor()
}

// Committed describes the newest commit of this worker; Generation 0 = none. Hash is empty until a
// sync needed it.
func (s *State) Committed() (c workerprotocol.Commit) {
	c.Generation, c.Step, c.Hash, _ = s.replica.Committed()
	return c
}

// Ledger is the account of consumed samples; after Run has returned nil it is that of the last
// commit.
func (s *State) Ledger() workerprotocol.Ledger {
	l := s.ledger
	l.Epochs = append([]workerprotocol.LedgerEpoch(nil), l.Epochs...)
	return l
}

// layout is the hash of what is registered: names, types and sizes, in order. Members must agree on
// it.
func (s *State) layout() statesync.Digest {
	h := sha256.New()
	s.replica.Tensors.WriteLayout(h)
	for _, v := range s.values {
		fmt.Fprintf(h, "value %q\n", v.name)
	}
	fmt.Fprintf(h, "data %d %d\n", s.sampler.Samples(), s.sampler.Seed())
	if e := s.elastic; e != nil {
		fmt.Fprintf(h, "elastic data %d %d\n", e.Samples(), e.Seed())
	}
	if s.shards != nil {
		fmt.Fprintf(h, "sharded, %v\n", s.shards.Options())
	}
	return statesync.Digest(h.Sum(nil))
}

// save makes the current state a commit, with a copy of the tensors that are live or without.
func (s *State) save(generation uint64, copied bool) error {
	b, err := s.metadata()
	switch {
	case err != nil:
		return err
	case copied:
		s.replica.Commit(b, generation, s.step)
	default:
		s.replica.CommitLive(b, generation, s.step)
	}
	return nil
}

// begin records the initial state, with which the job begins if no member has a commit. A state
// that has one keeps it.
func (s *State) begin() error {
	if s.replica.Newest() != nil {
		return nil
	}
	b, err := s.metadata()
	if err != nil {
		return err
	}
	s.replica.Begin(b, s.step)
	return nil
}

// metadata encodes everything but the tensors.
func (s *State) metadata() ([]byte, error) {
	m := metadata.Metadata{Run: s.run, Step: s.step, Cursor: s.sampler.Cursor(), Ledger: s.ledger, Values: make([][]byte, len(s.values))}
	if s.elastic != nil {
		position := s.elastic.StateDict()
		m.Elastic = &position
	}
	var err error
	for i, v := range s.values {
		if m.Values[i], err = v.Save(); err != nil {
			return nil, fmt.Errorf("commit value %q: %w", v.name, err)
		}
	}
	b, err := m.Encode()
	if err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	return b, nil
}

// Restore returns to the newest commit and discards what happened since. Without a commit it does
// nothing. A sharded state returns to a commit of the same generation, which all ranks must do.
func (s *State) Restore() error {
	if s.shards != nil {
		if err := s.shards.Restore(); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	return s.restore()
}

// restore is Restore without the parts of a sharded state, which the next sync fills.
func (s *State) restore() error {
	if s.replica.Newest() == nil {
		return nil
	}
	s.replica.Restore()
	return s.restoreMetadata()
}

// restoreMetadata restores everything but the tensors.
func (s *State) restoreMetadata() error {
	m, err := metadata.Decode(s.replica.Meta())
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if len(m.Values) != len(s.values) {
		return fmt.Errorf("restore: the commit has %d values, this program %d", len(m.Values), len(s.values))
	}
	for i, v := range s.values {
		if err := v.Restore(m.Values[i]); err != nil {
			return fmt.Errorf("restore value %q: %w", v.name, err)
		}
	}
	s.run, s.step, s.ledger, s.unmerged = m.Run, m.Step, m.Ledger, workerprotocol.Ledger{}
	if s.elastic == nil {
		s.sampler.Seek(m.Cursor)
		return nil
	}
	if m.Elastic == nil {
		return errors.New("restore: the commit is of another sampler")
	}
	if err := s.elastic.LoadStateDict(*m.Elastic); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}

// sync gives all members of a generation the same state, and returns the number of bytes that this
// one received.
func (s *State) sync(ctx context.Context, c *collective.Communicator, generation uint64) (received uint64, err error) {
	if err := s.begin(); err != nil {
		return 0, err
	}
	r, err := s.replica.Sync(ctx, c, generation)
	if err == nil && r.Changed {
		err = s.restoreMetadata()
	}
	return r.Received, err
}

// useCheckpoints makes the state begin with the newest checkpoint of a directory, if no member has
// a commit.
func (s *State) useCheckpoints(dir *checkpoint.Dir, skip bool, log *slog.Logger) error {
	newest, ok, err := s.replica.UseCheckpoints(dir, skip, log)
	if ok {
		s.run = newest.Run + 1 // even if none is intact: the checkpoints of this job are newer
	}
	return err
}

// resumed names the checkpoint with which the generation began; nil = none.
func (s *State) resumed() *workerprotocol.Commit {
	n := s.replica.Resumed()
	if n == nil {
		return nil
	}
	return &workerprotocol.Commit{Generation: n.Generation, Step: n.Step}
}
