package elastic

import (
	"context"
	"fmt"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/internal/agentclient"
	"github.com/regroup-io/regroup/elastic/internal/checkpointwriter"
	"github.com/regroup-io/regroup/elastic/internal/updates"
	"github.com/regroup-io/regroup/elastic/internal/vote"
	"github.com/regroup-io/regroup/elastic/samples"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// Membership is a worker's ranks in a generation.
type Membership struct {
	Generation           uint64
	Rank, World          int
	LocalRank, LocalSize int
	CrossRank, CrossSize int
}

// Session is a worker's part in one generation, while the training function runs. It belongs to
// that function's goroutine.
type Session struct {
	Membership
	Stage Stage
	// Traceparent is the W3C trace context for spans of the program in this generation; empty =
	// there is none.
	Traceparent string

	program  *collective.Communicator // for operations of the program
	comm     *collective.Communicator // the same, for the session's own operations
	state    *State
	reporter *agentclient.Reporter
	writer   *checkpointwriter.Writer
	updates  *updates.Updates
	agreed   int64  // the update that all ranks know of since the last step
	merged   bool   // what the ranks have recorded since the last commit is in the ledger
	alone    bool   // see CommitAlone
	alike    uint64 // see Alike

	agreement   *vote.Result // on the next commit, see AgreeEarly; nil = there is none yet
	asked       bool         // it was made by Agree
	ballot      *vote.Vote   // that this rank has, of a Ballot that is not Agreed yet
	early       bool         // AgreeEarly agrees; the same on all ranks
	copiedAlone bool         // this rank has copied in the last commit, and not all have

	parting  bool      // the last commit was answered with ErrPlannedChange, and no step was made since
	began    time.Time // when the state was in sync
	first    *workerprotocol.FirstStep
	metrics  map[string]float64
	measured uint64 // the step after which they were reported
}

// spare reports whether this worker only gives what it has of the state to the members.
func (s *Session) spare() bool { return s.Rank >= s.World }

// Comm is the generation's communicator, for collectives of the program's own; nil in the stage
// Candidate.
func (s *Session) Comm() *collective.Communicator { return s.program }

// Step is the number of steps in the state.
func (s *Session) Step() uint64 { return s.state.step }

// Epoch is the current epoch, from 0. The last batch of an epoch moves it on.
func (s *Session) Epoch() uint64 { return s.state.Cursor().Epoch }

// Next returns this rank's share of the next batch of up to globalBatch samples over all ranks.
func (s *Session) Next(globalBatch int) samples.Batch {
	return s.state.sampler.Next(globalBatch, s.Rank, s.World)
}

// NextMicro is Next in micro-batches of microBatch samples, each of which is dealt as a whole, see
// Batch.Micro: so the global batch, and with it the learning rate schedule, is the same at every
// world size, and the memory of a member is bounded. Use Mean to add them up.
func (s *Session) NextMicro(globalBatch, microBatch int) samples.Batch {
	return s.state.sampler.NextMicro(globalBatch, microBatch, s.Rank, s.World)
}

// Consume ends a step that has trained on b: all ranks agree on the samples that it took, and the
// step, the cursor and the ledger move on. b.Indices must be what was really consumed.
// AverageGradients does it too. It costs one allreduce of 48 bytes.
func (s *Session) Consume(ctx context.Context, b samples.Batch) error {
	t, err := s.sumStep(ctx, b)
	if err != nil {
		return err
	}
	s.advance(b, t)
	return nil
}

// AverageGradients ends the reduction part of a step: grads, this rank's mean over the samples of
// b, becomes the mean over the samples of all ranks, each sample with the same weight however
// uneven the shares are. Then it does what Consume does. Other values that are means over the
// samples, like the loss, can be appended to grads.
func (s *Session) AverageGradients(ctx context.Context, b samples.Batch, grads []float32) error {
	t, err := s.sumStep(ctx, b)
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
	s.advance(b, t)
	return nil
}

type stepTotals struct {
	count, hashes uint64 // of the samples of the step
	left          uint64 // samples that an ElasticSampler has not dealt
}

func (s *Session) sumStep(ctx context.Context, b samples.Batch) (stepTotals, error) {
	if !b.Elastic() && !s.state.sampler.IsNext(b) {
		return stepTotals{}, fmt.Errorf("a batch of epoch %d was consumed before, or is of another generation", b.Epoch)
	}
	// Element 2+u counts the ranks on which update u is pending. Sums wrap around, as unsigned ones
	// do.
	v := [3 + updates.Stop]int64{int64(len(b.Indices)), int64(samples.HashSum(b.Indices)), int64(b.Left())}
	if u := s.updates.Pending(); u != updates.None {
		v[2+u] = 1
	}
	if err := collective.Allreduce(ctx, s.comm, v[:], collective.Sum); err != nil {
		return stepTotals{}, err
	}
	for u := updates.Stop; u > updates.None; u-- {
		if v[2+u] > 0 {
			s.agreed = u
			break
		}
	}
	return stepTotals{count: uint64(v[0]), hashes: uint64(v[1]), left: uint64(v[2])}, nil
}

func (s *Session) advance(b samples.Batch, t stepTotals) {
	switch {
	case b.Elastic(): // the ledger gets it with the commit after it was recorded
		s.state.elastic.EndStep(t.left)
	default:
		if t.count > 0 || b.Last {
			s.state.ledger.Add(workerprotocol.LedgerEpoch{Epoch: b.Epoch, Count: t.count, Sum: t.hashes, Done: b.Last})
		}
		s.state.sampler.Advance(b)
	}
	s.Changed()
	s.EndStep()
}

// Report sets the metrics that the next progress reports carry; those of rank 0 are shown. NaN and
// infinities are left out.
func (s *Session) Report(metrics map[string]float64) {
	s.metrics, s.measured = agentclient.Finite(metrics), s.state.step
	s.reportProgress()
}

// ReportHash reports the hash of the state to the job, with those of its tensors: on one rank.
// Package reproducible does it.
func (s *Session) ReportHash(ctx context.Context, hash string, tensors map[string]string) {
	s.reporter.Hash(ctx, &workerprotocol.HashReport{Generation: s.Generation, Step: s.state.step, Hash: hash, Tensors: tensors})
}

// reportedMetrics returns the metrics that this rank tells its agent, and the step that they are
// of.
func (s *Session) reportedMetrics() (map[string]float64, *uint64) {
	if s.Rank != 0 || len(s.metrics) == 0 {
		return nil, nil
	}
	return s.metrics, new(s.measured)
}

// reportProgress reports progress to the agent; after the first step, how long the recovery took.
func (s *Session) reportProgress() {
	if s.reporter == nil {
		return
	}
	r := workerprotocol.Report{Generation: s.Generation, Step: s.state.step, Samples: s.state.ledger.Consumed()}
	r.Metrics, r.MetricsStep = s.reportedMetrics()
	if slow, ok := s.comm.Slowest(); ok {
		r.Slowest = &workerprotocol.Straggler{Rank: slow.Rank, Share: slow.Share}
	}
	r.Waited = s.comm.Waited()
	if s.first == nil || s.state.step == s.state.replica.Last().Step {
		s.reporter.Progress(&r)
		return
	}
	s.first.StepMS = agentclient.Milliseconds(time.Since(s.began))
	r.First, s.first = s.first, nil
	s.reporter.First(&r)
}

// reset calls the functions of OnReset. before is the membership in the previous generation.
func (s *Session) reset(ctx context.Context, before Membership) error {
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
