package kernel

import (
	"math"
	"slices"
	"testing"
)

func TestScale(t *testing.T) {
	each(t, func(t *testing.T, v *variant) {
		rng := source()
		for _, elem := range allFloats {
			for _, factor := range []float64{0.1, 1. / 3, -2, 0x1p-20, 1e300, 0, math.Inf(1), math.NaN()} {
				everySize(rng, func(n, offset, _ int) {
					if n > 100 && factor != 0.1 {
						return
					}
					dst := fill(rng, elem, offset, n)
					was := slices.Clone(dst.body)
					v.scaleAll(elem, n, dst.body, factor)
					expect(t, elem, dst.body, func(i int) uint64 { return scaleOne(elem, get(elem, was, i), factor) })
					dst.check(t)
				})
			}
		}
	})
}

func TestAverage(t *testing.T) {
	rng := source()
	for _, elem := range allTypes {
		for _, world := range []int{1, 2, 3, 7, 127, 128, 129, 1000, 1 << 30} {
			for offset := range 64 {
				dst := fill(rng, elem, offset, 300)
				was := slices.Clone(dst.body)
				Average(elem, dst.body, world)
				expect(t, elem, dst.body, func(i int) uint64 { return averageOne(elem, get(elem, was, i), world) })
				dst.check(t)
			}
		}
	}
}

func averageOne(t Type, bits uint64, n int) uint64 {
	mask := uint64(1)<<(8*t.Size()) - 1
	switch {
	case t.Float():
		return scaleOne(t, bits, 1/float64(n))
	case t == Uint8:
		return bits / uint64(n)
	}
	return uint64(signed(t, bits)/int64(n)) & mask
}
