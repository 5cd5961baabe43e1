package samples

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// ErrDiverged says that the ranks are not at the same point of the program.
var ErrDiverged = errors.New("ranks commit at different steps: the training function must do the same on all of them")

// ElasticSampler is Horovod's: each rank reads a share of its own, at its own pace and with batches
// of its own size, and records what it has trained on. Each commit merges what all ranks have
// recorded, so it survives the rank; the next generation deals the rest of the epoch anew. Nothing
// is padded, repeated or left out: shares differ by a sample at most, and a rank at the end of its
// share takes part with empty batches.
//
//	sampler := samples.NewElasticSampler(60000, seed)
//	state := elastic.NewState(nil)
//	state.SetElasticSampler(sampler)
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
// A program whose ranks all use batches of one size should use Sampler: its order does not depend
// on the world size. An ElasticSampler belongs to the goroutine of the training function.
type ElasticSampler struct {
	samples, seed uint64
	rank, world   int

	epoch uint64
	order permutation
	done  Set // positions in the order that all ranks know to be consumed

	// Since the start of the generation or of the epoch, or a restore:
	share    Set    // of this rank: positions in the order
	dealt    uint64 // of the share, by Next
	recorded Set    // of the share: indices into it
	finished bool   // all ranks were dealt all of their shares

	unmerged []progress // what this rank has recorded since the last commit
}

// progress is what was consumed of an epoch.
type progress struct {
	Epoch uint64 `json:"epoch"`
	Count uint64 `json:"count"`
	Sum   uint64 `json:"sum,string"` // of hashes
	Spans Set    `json:"spans"`      // positions in the order
	// Closed is set if the rest of the epoch will not be dealt.
	Closed bool `json:"closed,omitempty"`
}

// NewElasticSampler returns a sampler over the indices [0, samples), of a world of one until a
// State uses it.
func NewElasticSampler(samples, seed uint64) *ElasticSampler {
	s := &ElasticSampler{samples: samples, seed: seed, world: 1}
	s.deal()
	return s
}

func (s *ElasticSampler) deal() {
	s.order = newPermutation(s.samples, s.seed, s.epoch)
	left := s.done.Complement(s.samples)
	n := left.Len()
	s.share = left.Slice(shareStart(n, s.rank, s.world), shareStart(n, s.rank+1, s.world))
	s.dealt, s.recorded, s.finished = 0, nil, n == 0
}

// DealTo deals the rest of the epoch anew, to the ranks of a new generation.
func (s *ElasticSampler) DealTo(rank, world int) {
	s.rank, s.world = rank, world
	s.deal()
}

// Samples is the number of samples.
func (s *ElasticSampler) Samples() uint64 { return s.samples }

// Seed is the seed of the order.
func (s *ElasticSampler) Seed() uint64 { return s.seed }

// Epoch is the current epoch.
func (s *ElasticSampler) Epoch() uint64 { return s.epoch }

// Len is the number of samples of this rank's share.
func (s *ElasticSampler) Len() int { return int(s.share.Len()) }

// Indices yields this rank's share in its order.
func (s *ElasticSampler) Indices() iter.Seq[int] {
	return func(yield func(int) bool) { s.samplesAt(s.share)(yield) }
}

// samplesAt yields the samples at positions in the order.
func (s *ElasticSampler) samplesAt(positions Set) iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, x := range positions {
			for p := x.Lo; p < x.Hi; p++ {
				if !yield(int(s.order.at(p))) {
					return
				}
			}
		}
	}
}

// Batch returns batch index, from 0, of those into which a loader cuts Indices. The last one may be
// shorter, and those after it are empty.
func (s *ElasticSampler) Batch(index, size int) Batch { return s.slice(s.bounds(index, size)) }

// slice returns samples [lo, hi) of the share as a batch.
func (s *ElasticSampler) slice(lo, hi uint64) Batch {
	b := Batch{Epoch: s.epoch, share: &inShare{lo: lo, hi: hi, left: s.share.Len() - hi}}
	b.Indices = slices.AppendSeq(make([]int, 0, hi-lo), s.samplesAt(s.share.Slice(lo, hi)))
	b.Total, b.Micro = len(b.Indices), singleMicro(b.Indices)
	return b
}

// bounds returns the position of a loader's batch in the share.
func (s *ElasticSampler) bounds(index, size int) (lo, hi uint64) {
	if index < 0 || size < 1 {
		return 0, 0
	}
	n := s.share.Len()
	if uint64(index) > n/uint64(size) {
		return n, n
	}
	lo = uint64(index) * uint64(size)
	return lo, min(lo+uint64(size), n)
}

// Next returns up to size samples of this rank's share that were not dealt yet; none at the end of
// the share. The batch must be passed to Session.AverageGradients or Consume on all ranks, and to
// Record.
func (s *ElasticSampler) Next(size int) Batch {
	b := s.slice(s.dealt, min(s.dealt+uint64(max(size, 0)), s.share.Len()))
	s.dealt = b.share.hi
	return b
}

// Finished reports whether all ranks were dealt all of their shares, with the same result on all of
// them after a step. The program then calls SetEpoch.
func (s *ElasticSampler) Finished() bool { return s.finished }

// EndStep records how many samples all ranks together were not dealt yet, after a step.
func (s *ElasticSampler) EndStep(left uint64) { s.finished = left == 0 }

// SetEpoch begins an epoch, which must be the same on all ranks. For the current epoch it does
// nothing, so a program may call it at the start of each epoch, also after a restore. It closes an
// epoch that is finished: samples of it that were not recorded count as missing.
func (s *ElasticSampler) SetEpoch(epoch uint64) {
	if epoch == s.epoch {
		return
	}
	if s.finished {
		s.progress().Closed = true
	}
	s.epoch, s.done = epoch, nil
	s.deal()
}

// Record records that this rank has trained on a batch of Next.
func (s *ElasticSampler) Record(b Batch) error {
	if b.share == nil || b.Epoch != s.epoch {
		return fmt.Errorf("record: a batch of epoch %d is none of this sampler's, which is in epoch %d", b.Epoch, s.epoch)
	}
	return s.record(b.share.lo, b.share.hi)
}

// RecordBatch records that this rank has trained on Batch(index, size). Like that of a loader, the
// index begins anew with each generation, epoch and restore. size may differ between ranks.
// Recording a batch twice is an error.
func (s *ElasticSampler) RecordBatch(index, size int) error {
	if index < 0 || size < 1 {
		return fmt.Errorf("record: batch %d of %d samples", index, size)
	}
	return s.record(s.bounds(index, size))
}

// RecordIndices records that this rank has trained on samples of its share that were not recorded
// before. It records either all of them or none.
func (s *ElasticSampler) RecordIndices(indices []int) error {
	var all Set
	for _, i := range indices {
		if i < 0 || uint64(i) >= s.samples {
			return fmt.Errorf("record: index %d is not within 0 to %d", i, s.samples)
		}
		at, ok := s.share.Index(s.order.positionOf(uint64(i)))
		switch {
		case !ok:
			return fmt.Errorf("record: index %d is not of this rank's share", i)
		case s.recorded.Overlap(at, at+1)+all.Overlap(at, at+1) > 0:
			return fmt.Errorf("record: index %d was recorded before", i)
		}
		all.Add(at, at+1)
	}
	for _, x := range all {
		if err := s.record(x.Lo, x.Hi); err != nil {
			return err
		}
	}
	return nil
}

// progress is what this rank has recorded of the current epoch.
func (s *ElasticSampler) progress() *progress {
	if n := len(s.unmerged); n == 0 || s.unmerged[n-1].Epoch != s.epoch {
		s.unmerged = append(s.unmerged, progress{Epoch: s.epoch})
	}
	return &s.unmerged[len(s.unmerged)-1]
}

func (s *ElasticSampler) record(lo, hi uint64) error {
	if n := s.recorded.Overlap(lo, hi); n > 0 {
		return fmt.Errorf("record: %d of samples %d to %d of this rank's share were recorded before", n, lo, hi)
	}
	if lo >= hi {
		return nil
	}
	s.recorded.Add(lo, hi)
	p := s.progress()
	p.Count += hi - lo
	positions := s.share.Slice(lo, hi)
	for _, x := range positions {
		p.Spans.Add(x.Lo, x.Hi)
	}
	for i := range s.samplesAt(positions) {
		p.Sum += workerprotocol.SampleHash(uint64(i))
	}
	return nil
}

// ElasticState is what an ElasticSampler commits. It does not depend on the world, so any number of
// ranks can continue.
type ElasticState struct {
	Epoch uint64 `json:"epoch"`
	// Processed has positions in the order of the epoch, as [[from, to], ...].
	Processed Set `json:"processed"`
}

// Count is the number of samples of the epoch that all ranks know to be consumed.
func (s ElasticState) Count() uint64 { return s.Processed.Len() }

// StateDict returns what all ranks knew at the last commit.
func (s *ElasticSampler) StateDict() ElasticState {
	return ElasticState{Epoch: s.epoch, Processed: slices.Clone(s.done)}
}

// LoadStateDict returns to the result of a StateDict, of this worker or another one. What was
// recorded and not committed is discarded.
func (s *ElasticSampler) LoadStateDict(from ElasticState) error {
	if n := len(from.Processed); n > 0 && from.Processed[n-1].Hi > s.samples {
		return fmt.Errorf("load: sample %d is consumed of %d", from.Processed[n-1].Hi-1, s.samples)
	}
	s.epoch, s.done, s.unmerged = from.Epoch, slices.Clone(from.Processed), nil
	s.deal()
	return nil
}

type rankProgress struct {
	Epoch    uint64     `json:"epoch"`
	Consumed []progress `json:"consumed"`
}

// Progress returns what this rank has recorded since the last commit, for Merge. Session.Commit
// calls both; they are exported for programs that use other collectives.
func (s *ElasticSampler) Progress() ([]byte, error) {
	return json.Marshal(rankProgress{Epoch: s.epoch, Consumed: s.unmerged})
}

// Merge merges the progress of all ranks, in the order of the ranks, and returns what that adds to
// the ledger. A commit on all ranks must follow, or LoadStateDict on all.
func (s *ElasticSampler) Merge(all [][]byte) ([]workerprotocol.LedgerEpoch, error) {
	var sums workerprotocol.Ledger
	for rank, b := range all {
		var r rankProgress
		if err := json.Unmarshal(b, &r); err != nil {
			return nil, fmt.Errorf("rank %d: %w", rank, err)
		}
		if r.Epoch != s.epoch {
			return nil, fmt.Errorf("rank %d is in epoch %d, this one in %d: %w", rank, r.Epoch, s.epoch, ErrDiverged)
		}
		for _, p := range r.Consumed {
			sums.Add(workerprotocol.LedgerEpoch{Epoch: p.Epoch, Count: p.Count, Sum: p.Sum, Done: p.Closed})
			if p.Epoch != s.epoch {
				continue
			}
			for _, x := range p.Spans {
				if s.done.Overlap(x.Lo, x.Hi) > 0 {
					return nil, fmt.Errorf("rank %d has consumed samples that were consumed before", rank)
				}
				s.done.Add(x.Lo, x.Hi)
			}
		}
	}
	s.unmerged = nil
	return sums.Epochs, nil
}
