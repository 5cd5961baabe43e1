package elastic

import (
	"context"
	"fmt"

	"github.com/regroup-io/regroup/collective"
)

// Next returns this rank's share of the next batch of up to globalBatch samples over all ranks.
func (s *Session) Next(globalBatch int) Batch {
	return s.state.sampler.Next(globalBatch, s.Rank, s.World)
}

// NextMicro is Next in micro-batches of microBatch samples, which are dealt as a whole, see Batch.Micro: the way to keep the global
// batch, and with it the schedule of the learning rate, in every world, and the memory of a member bounded. Mean adds them up.
func (s *Session) NextMicro(globalBatch, microBatch int) Batch {
	return s.state.sampler.NextMicro(globalBatch, microBatch, s.Rank, s.World)
}

// Consume ends a step that has trained on b: all ranks agree on how many samples it took and which, and the step, the
// cursor and the ledger move on. b.Indices must be what was really consumed. AverageGradients does it too. It costs one
// allreduce of 48 bytes.
func (s *Session) Consume(ctx context.Context, b Batch) error {
	t, err := s.account(ctx, b)
	if err != nil {
		return err
	}
	s.fold(b, t)
	return nil
}

// tally is a step's reduction.
type tally struct {
	count, sum uint64
	left       uint64 // samples that an ElasticSampler has not dealt, on all ranks
}

func (s *Session) account(ctx context.Context, b Batch) (tally, error) {
	if b.own == nil && b.at != s.state.sampler.cursor {
		return tally{}, fmt.Errorf("the batch at %+v was consumed before, or is of another generation", b.at)
	}
	v := [3 + newsStop]int64{int64(len(b.Indices)), int64(hashSum(b.Indices))} // sums wrap around, as unsigned ones do
	if b.own != nil {
		v[2] = int64(b.own.left)
	}
	if n := s.news.get(); n != newsNone {
		v[2+n] = 1
	}
	if err := collective.Allreduce(ctx, s.comm, v[:], collective.Sum); err != nil {
		return tally{}, err
	}
	for n := newsStop; n > newsNone; n-- {
		if v[2+n] > 0 {
			s.agreed = n
			break
		}
	}
	return tally{count: uint64(v[0]), sum: uint64(v[1]), left: uint64(v[2])}, nil
}

func (s *Session) fold(b Batch, t tally) {
	switch {
	case b.own != nil: // it is in the ledger once it is recorded, with the commit
		s.state.elastic.finished = t.left == 0
	default:
		if t.count > 0 || b.Last {
			book(&s.state.ledger, b.Epoch, t.count, t.sum, b.Last)
		}
		s.state.sampler.advance(b)
	}
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
