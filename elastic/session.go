package elastic

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/collective"
)

// Interrupts: a training function returns them as they are, or wrapped, and Run calls it again in the next generation.
var (
	// ErrPlannedChange: the members are about to change. It comes from Commit, on all ranks at the same commit.
	ErrPlannedChange = errors.New("planned change: rejoin after this commit")
	// ErrStopped: the job is being stopped. It comes from Commit, on all ranks at the same commit; Run returns nil.
	ErrStopped = errors.New("the job is being stopped")
	// ErrPeerLost: a member is gone, and everything since the last commit is void. It comes from any collective.
	ErrPeerLost = collective.ErrPeerLost
)

// errDrifted: ranks are not at the same place in the program.
var errDrifted = errors.New("ranks commit at different steps: the training function must do the same on all of them")

// What a commit's reduction carries as news; the greatest wins.
const (
	newsNone int64 = iota
	newsPlanned
	newsStop
)

// Place is a worker's place in a generation.
type Place struct {
	Generation           uint64
	Rank, World          int
	LocalRank, LocalSize int
	CrossRank, CrossSize int
}

// Session is a worker's part in one generation, while the training function runs. It belongs to that function's
// goroutine.
type Session struct {
	Place
	comm     *collective.Communicator
	state    *State
	reporter *reporter
	news     atomic.Int64 // what the agent has announced
	agreed   int64        // what all ranks know to be announced, from the last step
	began    time.Time    // when the state was in sync
	first    *wire.FirstStep
	metrics  map[string]float64
}

// Comm is the generation's communicator, for collectives of the program's own.
func (s *Session) Comm() *collective.Communicator { return s.comm }

// Step is the number of steps behind the state.
func (s *Session) Step() uint64 { return s.state.step }

// Epoch is the current epoch, from 0. It moves with the last batch of one.
func (s *Session) Epoch() uint64 { return s.state.Cursor().Epoch }

// Next returns this rank's share of the next batch of up to globalBatch samples over all ranks.
func (s *Session) Next(globalBatch int) Batch {
	return s.state.sampler.Next(globalBatch, s.Rank, s.World)
}

// Consume ends a step that has trained on b: all ranks agree on how many samples it took and which, and the step, the
// cursor and the ledger move on. b.Indices must be what was really consumed. AverageGradients does it too. It costs one
// allreduce of 32 bytes.
func (s *Session) Consume(ctx context.Context, b Batch) error {
	t, err := s.account(ctx, b)
	if err != nil {
		return err
	}
	s.fold(b, t)
	return nil
}

// tally is a step's reduction.
type tally struct{ count, sum uint64 }

func (s *Session) account(ctx context.Context, b Batch) (tally, error) {
	if b.at != s.state.sampler.cursor {
		return tally{}, fmt.Errorf("the batch at %+v was consumed before, or is of another generation", b.at)
	}
	v := [4]int64{int64(len(b.Indices)), int64(hashSum(b.Indices))} // sums wrap around, as unsigned ones do
	if n := s.news.Load(); n != newsNone {
		v[1+n] = 1
	}
	if err := collective.Allreduce(ctx, s.comm, v[:], collective.Sum); err != nil {
		return tally{}, err
	}
	switch {
	case v[3] > 0:
		s.agreed = newsStop
	case v[2] > 0:
		s.agreed = newsPlanned
	}
	return tally{uint64(v[0]), uint64(v[1])}, nil
}

func (s *Session) fold(b Batch, t tally) {
	if t.count > 0 || b.Last {
		book(&s.state.ledger, b.Epoch, t.count, t.sum, b.Last)
	}
	s.state.sampler.advance(b)
	s.state.step++
	s.progress()
}

// AverageGradients ends the reduction part of a step: grads, this rank's mean over the samples of b, becomes the mean
// over the samples of all ranks, each sample with the same weight however uneven the shares are. Then it does what
// Consume does. Other values that are means over the samples, like the loss, can be appended to grads.
func (s *Session) AverageGradients(ctx context.Context, b Batch, grads []float32) error {
	t, err := s.account(ctx, b)
	if err != nil {
		return err
	}
	if len(b.Indices) == 0 {
		clear(grads) // a mean over nothing may be NaN
	} else {
		weight := float32(float64(len(b.Indices)) / float64(t.count))
		for i := range grads {
			grads[i] *= weight
		}
	}
	if err := collective.Allreduce(ctx, s.comm, grads, collective.Sum); err != nil {
		return err
	}
	s.fold(b, t)
	return nil
}

// CommitDue tells, alike on all ranks, whether it is time to commit: every so many steps, or because the last step
// carried the news that the members are about to change.
func (s *Session) CommitDue(every int) bool {
	return s.agreed != newsNone || (every > 0 && s.state.step%uint64(every) == 0)
}

// Commit makes the state one to which all ranks can return. All ranks must call it at the same step. It costs an
// allreduce of 40 bytes and one copy of the tensors. It returns ErrPlannedChange or ErrStopped after having committed.
func (s *Session) Commit(ctx context.Context) error {
	news, err := s.commit(ctx, false)
	switch {
	case err != nil:
		return err
	case news == newsStop:
		return ErrStopped
	case news == newsPlanned:
		return ErrPlannedChange
	}
	return nil
}

// commit agrees that all ranks are here, with the same intent, and saves.
func (s *Session) commit(ctx context.Context, final bool) (news int64, err error) {
	step, last := int64(s.state.step), int64(0)
	if final {
		last = 1
	}
	v := [5]int64{max(s.news.Load(), s.agreed), step, -step, last, -last}
	if err := collective.Allreduce(ctx, s.comm, v[:], collective.Max); err != nil {
		return 0, err
	}
	if v[1] != -v[2] || v[3] != -v[4] {
		return 0, fmt.Errorf("commit at step %d: %w", step, errDrifted)
	}
	if err := s.state.save(s.Generation); err != nil {
		return 0, err
	}
	if v[0] == newsPlanned {
		s.state.shelf.end()
	}
	if s.Rank == 0 {
		s.reporter.tell(nil, nil, &wire.CommitReport{Commit: s.state.Committed(), Ledger: s.state.Ledger()})
	}
	return v[0], nil
}

// Report sets metrics that the next progress reports carry; those of rank 0 are shown. NaN and infinities are left out.
func (s *Session) Report(metrics map[string]float64) {
	s.metrics = finite(metrics)
	s.progress()
}

// progress hands the agent's report over; with the first good step, how long the way back took.
func (s *Session) progress() {
	r := wire.Report{Generation: s.Generation, Step: s.state.step, Samples: consumed(s.state.ledger)}
	if s.Rank == 0 {
		r.Metrics = s.metrics
	}
	if s.first == nil || s.state.step == s.state.held.step {
		s.reporter.tell(&r, nil, nil)
		return
	}
	s.first.StepMS = milliseconds(time.Since(s.began))
	r.First, s.first = s.first, nil
	s.reporter.tell(nil, &r, nil)
}
