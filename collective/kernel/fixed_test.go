package kernel

import (
	"bytes"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

// fixedOne is what one float32 adds, computed with exact numbers.
func fixedOne(f float32, factor float64) int64 {
	exact := new(big.Float).SetPrec(400).SetFloat64(float64(f))
	exact.Mul(exact, big.NewFloat(factor))
	whole, _ := exact.Int(nil)
	rest := new(big.Float).SetPrec(400).Sub(exact, new(big.Float).SetPrec(400).SetInt(whole))
	sign := int64(exact.Sign())
	switch rest.Abs(rest).Cmp(big.NewFloat(0.5)) {
	case 1:
		return whole.Int64() + sign
	case 0:
		return whole.Int64() + sign*int64(whole.Bit(0))
	}
	return whole.Int64()
}

// within makes float32 whose magnitude is below 2^exponent, many of which lie half way between two
// integers when they are multiplied with 2^shift.
func within(rng *rand.Rand, exponent, shift int) float32 {
	switch rng.IntN(4) {
	case 0: // half way, of either sign
		return float32(math.Ldexp(float64(rng.IntN(1<<20)-1<<19)+0.5, -shift))
	case 1: // one at the end of what is allowed
		return float32(math.Ldexp(math.Copysign(1-0x1p-24, rng.Float64()-0.5), exponent))
	case 2:
		return math.Float32frombits(rng.Uint32() & 0x807fffff) // zeros and subnormals
	}
	return float32(math.Ldexp(2*rng.Float64()-1, exponent-rng.IntN(70)))
}

func TestFixedIsRoundedOnce(t *testing.T) {
	each(t, func(t *testing.T, v *variant) {
		rng := source()
		everySize(rng, func(n, offset, other int) {
			shift := rng.IntN(90) - 20
			factor := math.Copysign(math.Ldexp(1, shift), rng.Float64()-0.5)
			src, dst := fence(offset, 4*n), fill(rng, Int64, other, n)
			var largest float32
			for i := range n {
				f := within(rng, min(62-shift, 120), shift)
				if math.Abs(float64(f))*math.Abs(factor) >= 0x1p62 {
					f = 0
				}
				put(Float32, src.body, i, uint64(math.Float32bits(f)))
				largest = max(largest, float32(math.Abs(float64(f))))
			}
			was := slices.Clone(dst.body)
			if got := v.addFixedAll(fixedKernel, n, dst.body, src.body, factor); got != largest {
				t.Fatalf("the largest of %d is %g, want %g", n, got, largest)
			}
			expect(t, Int64, dst.body, func(i int) uint64 {
				return get(Int64, was, i) + uint64(fixedOne(math.Float32frombits(uint32(get(Float32, src.body, i))), factor))
			})
			dst.check(t)
			v.addFixedAll(fixedKernel, n, dst.body, src.body, -factor)
			expect(t, Int64, dst.body, func(i int) uint64 { return get(Int64, was, i) })
			if got := v.addFixedAll(firstKernel, n, dst.body, src.body, factor); got != largest {
				t.Fatalf("the largest of the first %d is %g, want %g", n, got, largest)
			}
			expect(t, Int64, dst.body, func(i int) uint64 {
				return uint64(fixedOne(math.Float32frombits(uint32(get(Float32, src.body, i))), factor))
			})
			dst.check(t)
		})
	})
}

func TestFixedTellsWhatIsNotFinite(t *testing.T) {
	each(t, func(t *testing.T, v *variant) {
		for _, bits := range []uint32{0x7f800000, 0xff800000, 0x7f800001, 0xffc00000, 0x7fffffff} {
			for place := range 200 {
				src := make([]byte, 4*200)
				put(Float32, src, place, uint64(bits))
				if got := v.addFixedAll(fixedKernel, 200, make([]byte, 8*200), src, 1); !math.IsInf(float64(got), 1) {
					t.Fatalf("%#x at %d: the largest is %g", bits, place, got)
				}
			}
		}
	})
}

// TestMeanIsRoundedAsInGo checks all sizes, and integers that a float64 has and has not.
func TestMeanIsRoundedAsInGo(t *testing.T) {
	each(t, func(t *testing.T, v *variant) {
		rng := source()
		everySize(rng, func(n, offset, other int) {
			factor, count := math.Ldexp(1, -rng.IntN(100)), float64(1+rng.IntN(1000))
			src, dst := fill(rng, Int64, offset, n), fence(other, 4*n)
			for i := range n {
				x := rng.Uint64() >> rng.IntN(64) // of any size
				if rng.IntN(4) == 0 {
					x = 1<<63 | rng.Uint64()>>(1+rng.IntN(63)) // with the sign
				}
				put(Int64, src.body, i, x)
			}
			v.meanFixedAll(n, dst.body, src.body, factor, count)
			expect(t, Float32, dst.body, func(i int) uint64 {
				return uint64(math.Float32bits(float32(float64(int64(get(Int64, src.body, i))) * factor / count)))
			})
			dst.check(t)
		})
	})
}

func TestLargestOfACopy(t *testing.T) {
	each(t, func(t *testing.T, v *variant) {
		rng := source()
		everySize(rng, func(n, offset, other int) {
			src, dst := fill(rng, Float32, offset, n), fence(other, 4*n)
			var largest float64
			for i := range n {
				if f := math.Abs(float64(math.Float32frombits(uint32(get(Float32, src.body, i))))); f == f {
					largest = max(largest, f)
				} else {
					largest = math.Inf(1)
				}
			}
			if got := v.copyLargestAll(n, dst.body, src.body); float64(got) != largest {
				t.Fatalf("the largest of %d is %g, want %g", n, got, largest)
			}
			expect(t, Float32, dst.body, func(i int) uint64 { return get(Float32, src.body, i) })
			dst.check(t)
		})
	})
}

// TestMeansOfSeveral compares it with the functions that it is made of.
func TestMeansOfSeveral(t *testing.T) {
	each(t, func(t *testing.T, v *variant) {
		rng := source()
		for _, n := range []int{0, 1, 15, meanBlock - 1, meanBlock, 2*meanBlock + 17} {
			for count := 1; count <= 5; count++ {
				shift := rng.IntN(60) - 20
				up, down := math.Ldexp(1, shift), math.Ldexp(1, -shift)
				sums, want := make([]byte, 8*n), make([]byte, 4*n)
				var floats, integers [][]byte
				for range count {
					src, one := make([]byte, 4*n), make([]byte, 8*n)
					for i := range n {
						f := within(rng, min(59-shift, 120), shift)
						if math.Abs(float64(f))*up >= 0x1p59 {
							f = 0
						}
						put(Float32, src, i, uint64(math.Float32bits(f)))
					}
					v.addFixedAll(fixedKernel, n, one, src, up)
					v.combineAll(Int64, OpSum, n, sums, sums, one)
					floats, integers = append(floats, src), append(integers, one)
				}
				v.meanFixedAll(n, want, sums, down, float64(count))
				for typ, sources := range map[Type][][]byte{Float32: floats, Int64: integers} {
					got := make([]byte, 4*n)
					v.meanOfAll(n, got, typ, sources, down, float64(count))
					if !bytes.Equal(got, want) {
						t.Fatalf("the means of %d times %d differ", count, n)
					}
				}
			}
		}
	})
}
