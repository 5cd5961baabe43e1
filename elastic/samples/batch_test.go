package samples

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestMicroBatchesAreTheSameInEveryWorld: their samples and their order; only who computes them
// differs, as evenly as can be.
func TestMicroBatchesAreTheSameInEveryWorld(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		samples, seed := rapid.Uint64Range(1, 300).Draw(r, "samples"), rapid.Uint64().Draw(r, "seed")
		global, micro := rapid.IntRange(1, 80).Draw(r, "global"), rapid.IntRange(1, 20).Draw(r, "micro")
		world := rapid.IntRange(1, 12).Draw(r, "world")
		one, many := NewSampler(samples, seed), NewSampler(samples, seed)
		for one.Cursor().Epoch == 0 {
			whole := one.NextMicro(global, micro, 0, 1)
			var dealt [][]int
			plan := MicroBatches(whole.Total, micro, world)
			if whole.MicroBatches() != len(whole.Micro) || whole.MicroSize() != micro {
				r.Fatalf("%d micro-batches of %d, want %d of %d", whole.MicroBatches(), whole.MicroSize(), len(whole.Micro), micro)
			}
			for m := range len(whole.Micro) + 1 {
				var want []int
				if m < len(whole.Micro) {
					want = whole.Micro[m]
				}
				if got := whole.MicroBatch(m); !slices.Equal(got, want) {
					r.Fatalf("micro-batch %d of any rank is %v, want %v", m, got, want)
				}
			}
			for rank := range world {
				b := many.NextMicro(global, micro, rank, world)
				if len(b.Micro) != plan[rank] || b.Total != whole.Total || b.Last != whole.Last {
					r.Fatalf("rank %d of %d has %d micro-batches, want %v", rank, world, len(b.Micro), plan)
				}
				if !slices.Equal(slices.Concat(b.Micro...), b.Indices) {
					r.Fatalf("%v are not the indices %v", b.Micro, b.Indices)
				}
				dealt = append(dealt, b.Micro...)
			}
			if !slices.EqualFunc(dealt, whole.Micro, slices.Equal[[]int]) {
				r.Fatalf("a world of %d has %v, one alone %v", world, dealt, whole.Micro)
			}
			if slices.Max(plan)-slices.Min(plan) > 1 {
				r.Fatalf("plan %v", plan)
			}
			one.Advance(whole)
			many.Advance(whole)
		}
	})
}

func TestMeanWeighsEverySampleAlike(t *testing.T) {
	value := func(indices []int, mean []float32) error {
		clear(mean)
		for _, i := range indices {
			mean[0] += float32(i) / float32(len(indices))
			mean[1] += 1 / float32(len(indices))
		}
		return nil
	}
	var m Mean
	for _, micro := range []int{1, 3, 4, 7, 100} {
		b := NewSampler(50, 1).NextMicro(23, micro, 0, 1)
		var want float64
		for _, i := range b.Indices {
			want += float64(i) / float64(len(b.Indices))
		}
		mean := []float32{5, 5}
		if err := m.Of(b, mean, value); err != nil || math.Abs(float64(mean[0])-want) > 1e-4 || math.Abs(float64(mean[1])-1) > 1e-6 {
			t.Errorf("micro-batches of %d: %v, %v; want %v and 1", micro, err, mean, want)
		}
	}
	mean := []float32{5}
	if err := m.Of(Batch{}, mean, value); err != nil || mean[0] != 0 {
		t.Errorf("the mean of nothing is %v, %v", mean, err)
	}
	no := errors.New("no")
	b := NewSampler(50, 1).NextMicro(23, 5, 0, 1)
	if err := m.Of(b, mean, func([]int, []float32) error { return no }); !errors.Is(err, no) {
		t.Errorf("error %v", err)
	}
}
