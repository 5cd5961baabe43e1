package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestWidenEveryValue(t *testing.T) {
	each(t, func(t *testing.T, v *variant) {
		for _, half := range allHalves {
			src := make([]byte, 2<<16)
			for i := range 1 << 16 {
				put(half, src, i, uint64(i))
			}
			dst := make([]byte, 4<<16)
			v.widenAll(half, 1<<16, dst, src)
			expect(t, Float32, dst, func(i int) uint64 { return uint64(math.Float32bits(widenOne(half, uint64(i)))) })
			back := make([]byte, len(src))
			v.narrowAll(half, 1<<16, back, dst)
			expect(t, half, back, func(i int) uint64 { return uint64(i) })
		}
	})
}

// boundaries has, for each number of the narrow type, what lies half way to the next one,
// and the float32 on either side of both.
func boundaries(half Type) []uint32 {
	var all []uint32
	list := halves[half]
	for i := range len(list) - 1 {
		for _, f := range []float64{list[i], (list[i] + list[i+1]) / 2} {
			bits := math.Float32bits(float32(f))
			all = append(all, bits, bits+1, bits|1<<31, (bits+1)|1<<31)
			if bits > 0 {
				all = append(all, bits-1, (bits-1)|1<<31)
			}
		}
	}
	for _, bits := range special[Float32] {
		all = append(all, uint32(bits))
	}
	// Every NaN whose payload is one bit: where it is cut off, infinity would be left.
	for bit := range 23 {
		all = append(all, 0x7f800000|1<<bit, 0xff800000|1<<bit)
	}
	// Every exponent, with mantissas that are cut, and carried on.
	for exponent := range uint32(256) {
		for bit := range 23 {
			all = append(all, exponent<<23|1<<bit, exponent<<23|1<<23-1<<bit, exponent<<23|1<<bit|1)
		}
	}
	return all
}

func TestNarrowRoundsToNearest(t *testing.T) {
	each(t, func(t *testing.T, v *variant) {
		rng := source()
		for _, half := range allHalves {
			values := boundaries(half)
			for range 200_000 {
				values = append(values, rng.Uint32())
			}
			dst := make([]byte, 2*len(values))
			v.narrowAll(half, len(values), dst, raw32(values))
			expect(t, half, dst, func(i int) uint64 { return narrowOne(half, math.Float32frombits(values[i])) })
		}
	})
}

func raw32(values []uint32) []byte {
	b := make([]byte, 4*len(values))
	for i, bits := range values {
		put(Float32, b, i, uint64(bits))
	}
	return b
}

// everySize runs a check on every length, and on every offset of either buffer.
func everySize(rng *rand.Rand, check func(n, offset, other int)) {
	for _, n := range append(lengths(), piece+77) {
		check(n, rng.IntN(64), rng.IntN(64))
	}
	for offset := range 64 {
		check(90, offset, rng.IntN(64))
		check(90, rng.IntN(64), offset)
	}
}

func TestConversionsOfEverySize(t *testing.T) {
	each(t, func(t *testing.T, v *variant) {
		rng := source()
		for _, half := range allHalves {
			everySize(rng, func(n, offset, other int) {
				src, dst := fill(rng, half, offset, n), fence(other, 4*n)
				v.widenAll(half, n, dst.body, src.body)
				expect(t, Float32, dst.body, func(i int) uint64 {
					return uint64(math.Float32bits(widenOne(half, get(half, src.body, i))))
				})
				dst.check(t)
				src, dst = fill(rng, Float32, offset, n), fence(other, 2*n)
				v.narrowAll(half, n, dst.body, src.body)
				expect(t, half, dst.body, func(i int) uint64 {
					return narrowOne(half, math.Float32frombits(uint32(get(Float32, src.body, i))))
				})
				dst.check(t)
			})
		}
	})
}

func TestReduceWiden(t *testing.T) {
	each(t, func(t *testing.T, v *variant) {
		rng := source()
		for _, half := range allHalves {
			for _, op := range allOps {
				everySize(rng, func(n, offset, other int) {
					src, dst := fill(rng, half, offset, n), fill(rng, Float32, other, n)
					was := slices.Clone(dst.body)
					v.reduceWidenAll(half, op, n, dst.body, src.body)
					expect(t, Float32, dst.body, func(i int) uint64 {
						wide := uint64(math.Float32bits(widenOne(half, get(half, src.body, i))))
						return combineOne(Float32, op, get(Float32, was, i), wide)
					})
					dst.check(t)
				})
			}
		}
	})
}
