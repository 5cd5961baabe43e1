package reproducible

import (
	"context"
	"fmt"
	"math"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/elastic"
	"github.com/regroup-io/regroup/elastic/samples"
)

// piece is the number of elements that are summed up at once: so many need memory beside the
// totals, which stay what they are, for the next attempt if a rank is lost.
const piece = 1 << 20

// sum adds up the totals of all ranks, and writes the means to grads. It makes sure that each
// micro-batch was counted once. greatest is infinite for a part that is not finite.
func (a *Accumulator) sum(ctx context.Context, s *elastic.Session, b samples.Batch, shifts []int, greatest, grads []float32) error {
	counts := make([]int64, len(a.dealing.done))
	for m, done := range a.dealing.done {
		if done {
			counts[m] = 1
		}
	}
	install := func(from int, sums []int64) {
		at := 0
		for i, n := range a.sizes {
			lo, hi := max(at, from), min(at+n, from+len(sums))
			switch {
			case lo >= hi:
			case infinite(greatest[i]):
				for j := range grads[lo:hi] {
					grads[lo+j] = float32(math.NaN())
				}
			default:
				// By samples: the last micro-batch may have less.
				kernel.MeanFixed(bytesOf(grads[lo:hi]), bytesOf(sums[lo-from:hi-from]), math.Ldexp(float64(b.MicroSize()), -shifts[i]), b.Total)
			}
			at += n
		}
	}
	if s.World == 1 {
		if err := a.once(counts); err != nil {
			return err
		}
		install(0, a.total)
		return nil
	}
	for from := 0; from < a.elements; from += piece {
		part := a.total[from:min(from+piece, a.elements)]
		a.sums = append(append(a.sums[:0], part...), counts...)
		if err := collective.Allreduce(ctx, s.Comm(), a.sums, collective.Sum); err != nil {
			return err
		}
		if err := a.once(a.sums[len(part):]); err != nil {
			return err
		}
		counts = nil // they go with the first piece
		install(from, a.sums[:len(part)])
	}
	return nil
}

// once makes sure that each micro-batch was counted once.
func (a *Accumulator) once(counts []int64) error {
	for m, n := range counts {
		if n != 1 {
			return fmt.Errorf("reproducible: micro-batch %d of step %d was counted %d times", m, a.at.step, n)
		}
	}
	return nil
}
