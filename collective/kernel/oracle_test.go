package kernel

import (
	"encoding/binary"
	"math"
	"sort"
)

// The oracle: one element at a time, the simplest way there is, sharing nothing with
// what it judges. Elements are their bits.

func get(t Type, b []byte, i int) uint64 {
	var word [8]byte
	copy(word[:], b[i*t.Size():(i+1)*t.Size()])
	return binary.LittleEndian.Uint64(word[:])
}

func put(t Type, b []byte, i int, bits uint64) {
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], bits)
	copy(b[i*t.Size():(i+1)*t.Size()], word[:])
}

// halves has the value of every float16 or bfloat16 that is not negative, in order, by
// its bits. Infinity is the number that would come next.
var halves = map[Type][]float64{Float16: listHalves(5, 10), BFloat16: listHalves(8, 7)}

func listHalves(exponentBits, mantissaBits int) []float64 {
	bias := 1<<(exponentBits-1) - 1
	all := make([]float64, (1<<exponentBits-1)<<mantissaBits+1)
	for i := range all {
		exponent, mantissa := i>>mantissaBits, i&(1<<mantissaBits-1)
		if exponent == 0 {
			exponent = 1
		} else {
			mantissa |= 1 << mantissaBits
		}
		all[i] = math.Ldexp(float64(mantissa), exponent-bias-mantissaBits)
	}
	return all
}

func widenOne(t Type, bits uint64) float32 {
	all, size := halves[t], int(bits&0x7fff)
	f := math.NaN()
	if size == len(all)-1 {
		f = math.Inf(1)
	} else if size < len(all) {
		f = all[size]
	}
	if bits>>15 == 1 {
		f = -f
	}
	return float32(f)
}

func narrowOne(t Type, f float32) uint64 {
	all, size := halves[t], math.Abs(float64(f))
	var sign uint64
	if math.Signbit(float64(f)) {
		sign = 1 << 15
	}
	if f != f {
		return 0x7fff
	}
	above := sort.SearchFloat64s(all, size)
	if above >= len(all) {
		return sign | uint64(len(all)-1)
	}
	if all[above] == size {
		return sign | uint64(above)
	}
	down, up := size-all[above-1], all[above]-size
	if down < up || down == up && above%2 == 1 {
		above--
	}
	return sign | uint64(above)
}

func isNaN(t Type, bits uint64) bool {
	switch t {
	case Float16, BFloat16:
		f := widenOne(t, bits)
		return f != f
	case Float32:
		return math.IsNaN(float64(math.Float32frombits(uint32(bits))))
	case Float64:
		return math.IsNaN(math.Float64frombits(bits))
	}
	return false
}

// same takes one NaN for another.
func same(t Type, a, b uint64) bool { return a == b || isNaN(t, a) && isNaN(t, b) }

func combineOne(t Type, op Op, a, b uint64) uint64 {
	mask := uint64(1)<<(8*t.Size()) - 1
	switch t {
	case Float16, BFloat16:
		return narrowOne(t, floatOne(op, widenOne(t, a), widenOne(t, b)))
	case Float32:
		return uint64(math.Float32bits(floatOne(op, math.Float32frombits(uint32(a)), math.Float32frombits(uint32(b)))))
	case Float64:
		return math.Float64bits(floatOne(op, math.Float64frombits(a), math.Float64frombits(b)))
	case Uint8:
		return uint64(integerOne(op, int64(a), int64(b))) & mask
	}
	return uint64(integerOne(op, signed(t, a), signed(t, b))) & mask
}

func signed(t Type, bits uint64) int64 {
	unused := 64 - 8*t.Size()
	return int64(bits<<unused) >> unused
}

func integerOne(op Op, a, b int64) int64 {
	switch {
	case op == OpSum:
		return a + b
	case op == OpProduct:
		return a * b
	case (op == OpMin) == (a < b):
		return a
	}
	return b
}

func floatOne[T float32 | float64](op Op, a, b T) T {
	switch {
	case op == OpSum:
		return a + b
	case op == OpProduct:
		return a * b
	case a != a:
		return a
	case b != b:
		return b
	case a == b && (op == OpMin) == math.Signbit(float64(a)): // for zeroes
		return a
	case a == b:
		return b
	case (op == OpMin) == (a < b):
		return a
	}
	return b
}

func scaleOne(t Type, a uint64, factor float64) uint64 {
	switch t {
	case Float16, BFloat16:
		return narrowOne(t, widenOne(t, a)*float32(factor))
	case Float32:
		return uint64(math.Float32bits(math.Float32frombits(uint32(a)) * float32(factor)))
	}
	return math.Float64bits(math.Float64frombits(a) * factor)
}
