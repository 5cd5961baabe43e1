package elastic

// Batch is one worker's share of a global batch.
type Batch struct {
	Epoch   uint64
	Indices []int   // of this worker's samples; may be empty when the world is larger than what is left of the epoch
	Micro   [][]int // the same, cut into the micro-batches that this worker computes one after the other
	Total   int     // samples of the global batch, over all workers; of an ElasticSampler's batch, this worker's
	Last    bool    // it is the last one of its epoch; not known of an ElasticSampler's batch
	at      Cursor
	own     *ownBatch // of an ElasticSampler; nil = of a Sampler
}

// ownBatch is where a batch lies in a rank's own share.
type ownBatch struct{ lo, hi, left uint64 }

// MicroBatches returns how many micro-batches each member of a world computes for a global batch: as evenly as whole ones can be dealt.
// The step takes as long as the first member's.
func MicroBatches(globalBatch, microBatch, world int) []int {
	n := (max(globalBatch, 0) + max(microBatch, 1) - 1) / max(microBatch, 1)
	counts := make([]int, world)
	for r := range counts {
		counts[r] = int(share(uint64(n), r+1, world) - share(uint64(n), r, world))
	}
	return counts
}

// Mean computes the mean over the samples of a batch from its micro-batches: f writes what it is over the samples of one, and mean
// is the mean of those, each sample with the same weight. An empty batch has a mean of zeros.
type Mean struct{ scratch []float32 }

// Of computes the mean over b into mean.
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

// oneMicro is a share that is computed at once.
func oneMicro(indices []int) [][]int {
	if len(indices) == 0 {
		return nil
	}
	return [][]int{indices}
}
