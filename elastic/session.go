package elastic

import (
	"context"
	"time"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/collective"
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
	Stage    Stage
	comm     *collective.Communicator
	state    *State
	reporter *reporter
	writer   *checkpointWriter
	news     news
	agreed   int64     // what all ranks know to be announced, from the last step
	began    time.Time // when the state was in sync
	first    *wire.FirstStep
	metrics  map[string]float64
	measured uint64 // step after which they were reported
}

// Comm is the generation's communicator, for collectives of the program's own; nil in the stage Aside.
func (s *Session) Comm() *collective.Communicator { return s.comm }

// Step is the number of steps behind the state.
func (s *Session) Step() uint64 { return s.state.step }

// Epoch is the current epoch, from 0. It moves with the last batch of one.
func (s *Session) Epoch() uint64 { return s.state.Cursor().Epoch }

// Report sets metrics that the next progress reports carry; those of rank 0 are shown. NaN and infinities are left out.
func (s *Session) Report(metrics map[string]float64) {
	s.metrics, s.measured = finite(metrics), s.state.step
	s.progress()
}

// progress hands the agent's report over; with the first good step, how long the way back took.
func (s *Session) progress() {
	if s.reporter == nil {
		return
	}
	r := wire.Report{Generation: s.Generation, Step: s.state.step, Samples: consumed(s.state.ledger)}
	if s.Rank == 0 {
		r.Metrics, r.MetricsStep = s.metrics, new(s.measured)
	}
	if slow, ok := s.comm.Slowest(); ok {
		r.Slowest = &wire.Straggler{Rank: slow.Rank, Share: slow.Share}
	}
	if s.first == nil || s.state.step == s.state.replica.Newest().Step() {
		s.reporter.tell(&r, nil, nil)
		return
	}
	s.first.StepMS = milliseconds(time.Since(s.began))
	r.First, s.first = s.first, nil
	s.reporter.tell(nil, &r, nil)
}

// reset calls the functions of OnReset. before is the place in the previous generation.
func (s *Session) reset(ctx context.Context, before Place) error {
	if s.Generation <= 1 && s.state.replica.Resumed() == nil {
		return nil
	}
	for _, f := range s.state.resets {
		if err := f(ctx, s, before); err != nil {
			return err
		}
	}
	return nil
}
