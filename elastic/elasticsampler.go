package elastic

import (
	"fmt"
	"iter"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
)

// ElasticSampler is Horovod's: each rank reads a share of its own, at its own pace and with batches of its own size, and says what it
// has trained on. What was said on any rank is put together at each commit, so it survives the rank; the next generation deals the rest of the
// epoch anew. Nothing is padded, repeated or left out: shares differ by a sample at most, and who is through takes part with empty batches.
//
//	sampler := elastic.NewElasticSampler(60000, seed)
//	state := elastic.NewState(nil)
//	state.Sample(sampler)
//	... and in the training function:
//	for sampler.Epoch() < epochs {
//		b := sampler.Next(32)
//		gradients := backward(b.Indices)
//		err := s.AverageGradients(ctx, b, gradients)
//		...
//		err = sampler.Record(b)
//		if sampler.Finished() {
//			sampler.SetEpoch(sampler.Epoch() + 1)
//		}
//		... commit
//	}
//
// Who needs no more than batches of one size for all should take Sampler: its order does not depend on the world. An ElasticSampler
// belongs to the goroutine of the training function.
type ElasticSampler struct {
	samples, seed uint64
	rank, world   int

	epoch uint64
	order permutation
	done  spans // places in the order that all ranks know to be consumed

	// The pass that began with the generation, the epoch or a restore:
	share    spans  // of this rank: places in the order
	dealt    uint64 // of the share, by Next
	recorded spans  // of the share, by its own numbers from 0
	finished bool   // all ranks were dealt all of their shares

	unsaid []progress // what this rank has recorded since the last commit
}

// progress is what was consumed of an epoch.
type progress struct {
	Epoch uint64 `json:"epoch"`
	Count uint64 `json:"count"`
	Sum   uint64 `json:"sum,string"` // of hashes
	Spans spans  `json:"spans"`      // places in the order
	// Closed: no more of it is dealt.
	Closed bool `json:"closed,omitempty"`
}

// NewElasticSampler returns a sampler over the indices [0, samples), alone until a State has it.
func NewElasticSampler(samples, seed uint64) *ElasticSampler {
	s := &ElasticSampler{samples: samples, seed: seed, world: 1}
	s.begin()
	return s
}

// begin deals what is left of the epoch.
func (s *ElasticSampler) begin() {
	s.order = newPermutation(s.samples, s.seed, s.epoch)
	left := s.done.rest(s.samples)
	n := left.count()
	s.share = left.within(share(n, s.rank, s.world), share(n, s.rank+1, s.world))
	s.dealt, s.recorded, s.finished = 0, nil, n == 0
}

// place deals to the members of a generation.
func (s *ElasticSampler) place(rank, world int) {
	s.rank, s.world = rank, world
	s.begin()
}

// Epoch is the current epoch.
func (s *ElasticSampler) Epoch() uint64 { return s.epoch }

// Len is the number of samples of this rank's share.
func (s *ElasticSampler) Len() int { return int(s.share.count()) }

// Indices yields this rank's share in its order.
func (s *ElasticSampler) Indices() iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, x := range s.share {
			for p := x.lo; p < x.hi; p++ {
				if !yield(int(s.order.at(p))) {
					return
				}
			}
		}
	}
}

// Batch returns batch index, from 0, of those into which a loader cuts Indices. The last one may be shorter, and those after it
// are empty.
func (s *ElasticSampler) Batch(index, size int) Batch { return s.slice(s.batch(index, size)) }

// slice returns samples [lo, hi) of the share as a batch.
func (s *ElasticSampler) slice(lo, hi uint64) Batch {
	b := Batch{Epoch: s.epoch, Indices: s.indices(lo, hi), own: &ownBatch{lo: lo, hi: hi, left: s.share.count() - hi}}
	b.Total, b.Micro = len(b.Indices), oneMicro(b.Indices)
	return b
}

// batch returns where a batch lies in the share.
func (s *ElasticSampler) batch(index, size int) (lo, hi uint64) {
	if index < 0 || size < 1 {
		return 0, 0
	}
	n := s.share.count()
	if uint64(index) > n/uint64(size) {
		return n, n
	}
	lo = uint64(index) * uint64(size)
	return lo, min(lo+uint64(size), n)
}

func (s *ElasticSampler) indices(lo, hi uint64) []int {
	all := make([]int, 0, hi-lo)
	for _, x := range s.share.within(lo, hi) {
		for p := x.lo; p < x.hi; p++ {
			all = append(all, int(s.order.at(p)))
		}
	}
	return all
}

// Next returns up to size samples of this rank's share that were not dealt yet; none if it is through. It must be passed to
// Session.AverageGradients or Consume on all ranks, and to Record.
func (s *ElasticSampler) Next(size int) Batch {
	b := s.slice(s.dealt, min(s.dealt+uint64(max(size, 0)), s.share.count()))
	s.dealt = b.own.hi
	return b
}

// Finished tells, alike on all ranks after a step, whether all of them were dealt all of their shares: the next is SetEpoch.
func (s *ElasticSampler) Finished() bool { return s.finished }

// SetEpoch begins an epoch, the same on all ranks. For the epoch that is under way it does nothing: a program may call it at the start of each
// epoch, also after a restore. One that is finished is closed: what was not recorded of it is missing.
func (s *ElasticSampler) SetEpoch(epoch uint64) {
	if epoch == s.epoch {
		return
	}
	if s.finished {
		s.progress().Closed = true
	}
	s.epoch, s.done = epoch, nil
	s.begin()
}

// Record says that this rank has trained on a batch of Next.
func (s *ElasticSampler) Record(b Batch) error {
	if b.own == nil || b.Epoch != s.epoch {
		return fmt.Errorf("record: a batch of epoch %d is none of this sampler's, which is in epoch %d", b.Epoch, s.epoch)
	}
	return s.record(b.own.lo, b.own.hi)
}

// RecordBatch says that this rank has trained on Batch(index, size). The index begins anew with each generation, epoch and restore, as a loader
// does. size may differ between ranks. Saying it twice is an error.
func (s *ElasticSampler) RecordBatch(index, size int) error {
	if index < 0 || size < 1 {
		return fmt.Errorf("record: batch %d of %d samples", index, size)
	}
	return s.record(s.batch(index, size))
}

// RecordIndices says that this rank has trained on some samples, which must be of its share and not have been recorded.
// Either all of them are recorded or none.
func (s *ElasticSampler) RecordIndices(indices []int) error {
	var all spans
	for _, i := range indices {
		if i < 0 || uint64(i) >= s.samples {
			return fmt.Errorf("record: index %d is not within 0 to %d", i, s.samples)
		}
		at, ok := s.share.place(s.order.of(uint64(i)))
		switch {
		case !ok:
			return fmt.Errorf("record: index %d is not of this rank's share", i)
		case s.recorded.meets(at, at+1)+all.meets(at, at+1) > 0:
			return fmt.Errorf("record: index %d was recorded before", i)
		}
		all.add(at, at+1)
	}
	for _, x := range all {
		if err := s.record(x.lo, x.hi); err != nil {
			return err
		}
	}
	return nil
}

// progress is what this rank has to say of the epoch.
func (s *ElasticSampler) progress() *progress {
	if n := len(s.unsaid); n == 0 || s.unsaid[n-1].Epoch != s.epoch {
		s.unsaid = append(s.unsaid, progress{Epoch: s.epoch})
	}
	return &s.unsaid[len(s.unsaid)-1]
}

// record takes samples [lo, hi) of the share.
func (s *ElasticSampler) record(lo, hi uint64) error {
	if n := s.recorded.meets(lo, hi); n > 0 {
		return fmt.Errorf("record: %d of samples %d to %d of this rank's share were recorded before", n, lo, hi)
	}
	if lo >= hi {
		return nil
	}
	s.recorded.add(lo, hi)
	p := s.progress()
	p.Count += hi - lo
	for _, x := range s.share.within(lo, hi) {
		p.Spans.add(x.lo, x.hi)
		for q := x.lo; q < x.hi; q++ {
			p.Sum += wire.SampleHash(s.order.at(q))
		}
	}
	return nil
}
