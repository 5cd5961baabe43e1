package elastic

import "github.com/regroup-io/regroup/agent/workerapi/wire"

// Cursor is a place in the stream of samples: Position samples of Epoch have been consumed.
type Cursor struct {
	Epoch    uint64 `json:"epoch"`
	Position uint64 `json:"position"`
}

// Sampler deals the samples of a data set to the members of a generation. The order of an epoch depends on the seed
// and the epoch alone, so a cursor is the whole of its state: whatever the world becomes, the next batch starts where
// the last committed one ended. Shares are contiguous and may be uneven; nothing is padded, dropped or repeated.
type Sampler struct {
	samples uint64
	seed    uint64
	cursor  Cursor
	order   permutation
	ready   bool // order is that of the cursor's epoch
}

// NewSampler returns a sampler over the indices [0, samples).
func NewSampler(samples, seed uint64) *Sampler { return &Sampler{samples: samples, seed: seed} }

// Cursor returns where the next batch starts.
func (s *Sampler) Cursor() Cursor { return s.cursor }

// Seek goes to a cursor that an equal sampler has returned.
func (s *Sampler) Seek(c Cursor) {
	if c.Epoch != s.cursor.Epoch {
		s.ready = false
	}
	s.cursor = c
}

// Next returns rank's share of the next batch of up to globalBatch samples; it does not move the cursor. A batch ends
// with its epoch. With no samples at all, or a globalBatch below 1, Total is 0.
func (s *Sampler) Next(globalBatch, rank, world int) Batch {
	b := s.deal(globalBatch, 1, rank, world)
	b.Micro = oneMicro(b.Indices)
	return b
}

// NextMicro is Next in micro-batches of microBatch samples, which are dealt as a whole; the last one of a batch may be
// shorter. Each step takes the same samples in every world, and every member computes pieces of one size that fit its memory.
func (s *Sampler) NextMicro(globalBatch, microBatch, rank, world int) Batch {
	microBatch = max(microBatch, 1)
	b := s.deal(globalBatch, uint64(microBatch), rank, world)
	for i := 0; i < len(b.Indices); i += microBatch {
		b.Micro = append(b.Micro, b.Indices[i:min(i+microBatch, len(b.Indices))])
	}
	return b
}

// deal returns rank's part of the next batch, in pieces of unit samples.
func (s *Sampler) deal(globalBatch int, unit uint64, rank, world int) Batch {
	total := min(uint64(max(globalBatch, 0)), s.samples-s.cursor.Position)
	b := Batch{Epoch: s.cursor.Epoch, Total: int(total), at: s.cursor}
	b.Last = total > 0 && s.cursor.Position+total == s.samples
	if !s.ready {
		s.order, s.ready = newPermutation(s.samples, s.seed, s.cursor.Epoch), true
	}
	pieces := (total + unit - 1) / unit
	low, high := share(pieces, rank, world)*unit, min(share(pieces, rank+1, world)*unit, total)
	low = min(low, high)
	b.Indices = make([]int, 0, high-low)
	for i := low; i < high; i++ {
		b.Indices = append(b.Indices, int(s.order.at(s.cursor.Position+i)))
	}
	return b
}

// advance moves the cursor behind b; the epoch after the last batch begins at once.
func (s *Sampler) advance(b Batch) {
	next := Cursor{Epoch: b.at.Epoch, Position: b.at.Position + uint64(b.Total)}
	if b.Last {
		next = Cursor{Epoch: b.at.Epoch + 1}
	}
	s.Seek(next)
}

// share returns where the part of a rank begins.
func share(total uint64, rank, world int) uint64 {
	each, extra := total/uint64(world), total%uint64(world)
	return each*uint64(rank) + min(extra, uint64(rank))
}

// hashSum returns the sum of the hashes of indices: what they add to the ledger.
func hashSum(indices []int) uint64 {
	var sum uint64
	for _, i := range indices {
		sum += wire.SampleHash(uint64(i))
	}
	return sum
}
