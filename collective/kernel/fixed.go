package kernel

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// AddFixed adds fixed-point numbers, whose sum does not depend on the order: to each Int64 in dst
// it adds the Float32 in src times factor, rounded to nearest, ties to even. factor is a power of
// two, or the negative of one, which takes away what the power has added. It returns the largest
// magnitude in src, Inf if one is a NaN. With that times factor above 2^62 what is added is
// undefined.
func AddFixed(dst, src []byte, factor float64) (largest float32) {
	n := elements(Float32, src)
	checkLength(n, Int64, dst)
	return chosen.addFixedAll(n, dst, src, factor)
}

func (v *variant) addFixedAll(n int, dst, src []byte, factor float64) float32 {
	var lanes [line / 4]uint32
	inPieces(n, func(from, to int) {
		if v.call != nil {
			most := (*byte)(unsafe.Pointer(&lanes))
			from += v.call(fixedKernel, at(dst, Int64, from), at(src, Float32, from), most, to-from, factor)
		}
		lanes[0] = max(lanes[0], addFixed(cut(dst, Int64, from, to), cut(src, Float32, from, to), factor))
	})
	var most uint32
	for _, bits := range lanes {
		most = max(most, bits)
	}
	if f := math.Float32frombits(most); f == f {
		return f
	}
	return float32(math.Inf(1))
}

// addFixed does it in plain Go, and returns the largest bits of a magnitude.
func addFixed(dst, src []byte, factor float64) (most uint32) {
	order := binary.NativeEndian
	for len(src) > 0 {
		bits := order.Uint32(src)
		most = max(most, bits&^(1<<31))
		rounded := math.RoundToEven(float64(math.Float32frombits(bits)) * factor)
		order.PutUint64(dst, order.Uint64(dst)+uint64(int64(rounded)))
		dst, src = dst[8:], src[4:]
	}
	return most
}

// MeanFixed is the mean of the summands of fixed-point numbers: of each Int64 in src it makes a
// Float32 in dst, by float64(x) * factor / count, each rounded to nearest, ties to even.
func MeanFixed(dst, src []byte, factor float64, count int) {
	n := elements(Int64, src)
	checkLength(n, Float32, dst)
	chosen.meanFixedAll(n, dst, src, factor, float64(count))
}

func (v *variant) meanFixedAll(n int, dst, src []byte, factor, count float64) {
	inPieces(n, func(from, to int) {
		if v.call != nil {
			by := (*byte)(unsafe.Pointer(&count))
			from += v.call(meanKernel, at(dst, Float32, from), at(src, Int64, from), by, to-from, factor)
		}
		meanFixed(cut(dst, Float32, from, to), cut(src, Int64, from, to), factor, count)
	})
}

// meanFixed does it in plain Go.
func meanFixed(dst, src []byte, factor, count float64) {
	order := binary.NativeEndian
	for len(src) > 0 {
		mean := float64(int64(order.Uint64(src))) * factor / count
		order.PutUint32(dst, math.Float32bits(float32(mean)))
		dst, src = dst[4:], src[8:]
	}
}
