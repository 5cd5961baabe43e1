package samples

import "github.com/regroup-io/regroup/internal/workerprotocol"

// Cursor is a position in the stream of samples: Position samples of Epoch have been consumed.
type Cursor struct {
	Epoch    uint64 `json:"epoch"`
	Position uint64 `json:"position"`
}

// Sampler deals the samples of a data set to the members of a generation. The order of an epoch
// depends on the seed and the epoch alone, so a cursor is the whole of its state: whatever the
// world size becomes, the next batch starts where the last committed one ended. Shares are
// contiguous and may be uneven; nothing is padded, dropped or repeated.
type Sampler struct {
	samples uint64
	seed    uint64
	cursor  Cursor
	order   permutation
	ready   bool // order is that of the cursor's epoch
}

// NewSampler returns a sampler over the indices [0, samples).
func NewSampler(samples, seed uint64) *Sampler { return &Sampler{samples: samples, seed: seed} }

// Samples is the number of samples.
func (s *Sampler) Samples() uint64 { return s.samples }

// Seed is the seed of the order.
func (s *Sampler) Seed() uint64 { return s.seed }

// Cursor returns where the next batch starts.
func (s *Sampler) Cursor() Cursor { return s.cursor }

// Seek moves to a cursor that an equal sampler has returned.
func (s *Sampler) Seek(c Cursor) {
	if c.Epoch != s.cursor.Epoch {
		s.ready = false
	}
	s.cursor = c
}

// Next returns rank's share of the next batch of up to globalBatch samples; it does not move the
// cursor. A batch ends with its epoch. Total is 0 if there are no samples at all, or if globalBatch
// is below 1.
func (s *Sampler) Next(globalBatch, rank, world int) Batch {
	b := s.deal(globalBatch, 1, rank, world)
	b.Micro = singleMicro(b.Indices)
	return b
}

// NextMicro is Next in micro-batches of microBatch samples, each of which is dealt as a whole; the
// last one of a batch may be shorter. A step takes the same samples at every world size, and
// members compute on micro-batches that fit their memory.
func (s *Sampler) NextMicro(globalBatch, microBatch, rank, world int) Batch {
	microBatch = max(microBatch, 1)
	b := s.deal(globalBatch, uint64(microBatch), rank, world)
	b.size, b.order = microBatch, s.order
	for i := 0; i < len(b.Indices); i += microBatch {
		b.Micro = append(b.Micro, b.Indices[i:min(i+microBatch, len(b.Indices))])
	}
	return b
}

// deal returns rank's share of the next batch, in units of unit samples.
func (s *Sampler) deal(globalBatch int, unit uint64, rank, world int) Batch {
	total := min(uint64(max(globalBatch, 0)), s.samples-s.cursor.Position)
	b := Batch{Epoch: s.cursor.Epoch, Total: int(total), at: s.cursor}
	b.Last = total > 0 && s.cursor.Position+total == s.samples
	if !s.ready {
		s.order, s.ready = newPermutation(s.samples, s.seed, s.cursor.Epoch), true
	}
	units := (total + unit - 1) / unit
	low, high := shareStart(units, rank, world)*unit, min(shareStart(units, rank+1, world)*unit, total)
	low = min(low, high)
	b.Indices = make([]int, 0, high-low)
	for i := low; i < high; i++ {
		b.Indices = append(b.Indices, int(s.order.at(s.cursor.Position+i)))
	}
	return b
}

// IsNext reports whether a batch is of this sampler and begins at its cursor.
func (s *Sampler) IsNext(b Batch) bool { return b.share == nil && b.at == s.cursor }

// Advance moves the cursor to the end of b; after the last batch of an epoch, to the next epoch.
func (s *Sampler) Advance(b Batch) {
	next := Cursor{Epoch: b.at.Epoch, Position: b.at.Position + uint64(b.Total)}
	if b.Last {
		next = Cursor{Epoch: b.at.Epoch + 1}
	}
	s.Seek(next)
}

func shareStart(total uint64, rank, world int) uint64 {
	each, extra := total/uint64(world), total%uint64(world)
	return each*uint64(rank) + min(extra, uint64(rank))
}

// Batch is one worker's share of a global batch.
type Batch struct {
	Epoch   uint64
	Indices []int    // of this worker's samples; may be empty at the end of an epoch
	Micro   [][]int  // the same, cut into micro-batches
	Total   int      // samples of all workers; of an ElasticSampler's batch, this worker's
	Last    bool     // it is the last batch of its epoch; unset for an ElasticSampler's batch
	at      Cursor   // where it begins
	share   *inShare // of an ElasticSampler; nil = of a Sampler

	size  int         // of a micro-batch of NextMicro; 0 = it is not of NextMicro
	order permutation // of the epoch, with size
}

// Elastic reports whether the batch is of an ElasticSampler.
func (b Batch) Elastic() bool { return b.share != nil }

// MicroSize is the number of samples of a micro-batch of NextMicro, of which the last one may have
// less; 0 = the batch is not of NextMicro.
func (b Batch) MicroSize() int { return b.size }

// MicroBatches is the number of micro-batches of a batch of NextMicro over all ranks.
func (b Batch) MicroBatches() int {
	if b.size == 0 || b.Total == 0 {
		return 0
	}
	return 1 + (b.Total-1)/b.size
}

// MicroBatch returns the samples of micro-batch m of those of all ranks, of a batch of NextMicro:
// they do not depend on the world, so that any rank can compute them. Outside 0 to
// b.MicroBatches()-1 there is none. A rank that computes others than its own gives
// Session.Consume what it has computed, in Indices.
func (b Batch) MicroBatch(m int) []int {
	if m < 0 || m >= b.MicroBatches() {
		return nil
	}
	first := m * b.size
	indices := make([]int, min(b.size, b.Total-first))
	for i := range indices {
		indices[i] = int(b.order.at(b.at.Position + uint64(first+i)))
	}
	return indices
}

// Left is the number of samples that follow the batch in this rank's share; 0 for a Sampler's.
func (b Batch) Left() uint64 {
	if b.share == nil {
		return 0
	}
	return b.share.left
}

// HashSum returns the sum of the hashes of samples, which is what they add to the ledger.
func HashSum(indices []int) (sum uint64) {
	for _, i := range indices {
		sum += workerprotocol.SampleHash(uint64(i))
	}
	return sum
}

// inShare is the position of a batch in a rank's share, and how many samples follow it.
type inShare struct{ lo, hi, left uint64 }

// MicroBatches returns how many micro-batches of a global batch each member of a world computes: as
// evenly as whole ones can be dealt. The step takes as long as the first member's.
func MicroBatches(globalBatch, microBatch, world int) []int {
	n := (max(globalBatch, 0) + max(microBatch, 1) - 1) / max(microBatch, 1)
	counts := make([]int, world)
	for r := range counts {
		counts[r] = int(shareStart(uint64(n), r+1, world) - shareStart(uint64(n), r, world))
	}
	return counts
}

// Mean computes means over the samples of a batch from its micro-batches, each sample with the same
// weight. The mean over an empty batch is zero.
type Mean struct{ scratch []float32 }

// Of computes the mean over b into mean. f computes the mean over the samples of one micro-batch.
func (m *Mean) Of(b Batch, mean []float32, f func(indices []int, mean []float32) error) error {
	if len(b.Micro) == 1 {
		return f(b.Micro[0], mean)
	}
	if cap(m.scratch) < len(mean) {
		m.scratch = make([]float32, len(mean))
	}
	part := m.scratch[:len(mean)]
	clear(mean)
	for _, indices := range b.Micro {
		if err := f(indices, part); err != nil {
			return err
		}
		weight := float32(float64(len(indices)) / float64(len(b.Indices)))
		for i, v := range part {
			mean[i] += weight * v
		}
	}
	return nil
}

func singleMicro(indices []int) [][]int {
	if len(indices) == 0 {
		return nil
	}
	return [][]int{indices}
}
