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
	return chosen.addFixedAll(fixedKernel, n, dst, src, factor)
}

// SetFixed does what AddFixed does with zeros in dst, whatever there is.
func SetFixed(dst, src []byte, factor float64) (largest float32) {
	n := elements(Float32, src)
	checkLength(n, Int64, dst)
	return chosen.addFixedAll(firstKernel, n, dst, src, factor)
}

func (v *variant) addFixedAll(kernel, n int, dst, src []byte, factor float64) float32 {
	return v.largestOf(n, func(from, to int, most *byte) int {
		return v.call(kernel, at(dst, Int64, from), at(src, Float32, from), most, to-from, factor)
	}, func(from, to int) uint32 {
		if kernel == firstKernel {
			clear(cut(dst, Int64, from, to))
		}
		return addFixed(cut(dst, Int64, from, to), cut(src, Float32, from, to), factor)
	})
}

// CopyLargest copies the Float32 in src, and returns the largest magnitude, Inf if one is a NaN.
func CopyLargest(dst, src []byte) (largest float32) {
	n := elements(Float32, src)
	checkLength(n, Float32, dst)
	return chosen.copyLargestAll(n, dst, src)
}

func (v *variant) copyLargestAll(n int, dst, src []byte) float32 {
	return v.largestOf(n, func(from, to int, most *byte) int {
		return v.call(largestKernel, at(dst, Float32, from), at(src, Float32, from), most, to-from, 0)
	}, func(from, to int) (most uint32) {
		src := cut(src, Float32, from, to)
		copy(cut(dst, Float32, from, to), src)
		for ; len(src) > 0; src = src[4:] {
			most = max(most, binary.NativeEndian.Uint32(src)&^(1<<31))
		}
		return most
	})
}

// largestOf does something with n elements, which finds the largest bits of a magnitude: whole
// vectors by call, which keeps them by lane at most and returns how many elements it has done, and
// the rest by plain.
func (v *variant) largestOf(n int, call func(from, to int, most *byte) int, plain func(from, to int) uint32) float32 {
	var lanes [line / 4]uint32
	inPieces(n, func(from, to int) {
		if v.call != nil {
			from += call(from, to, (*byte)(unsafe.Pointer(&lanes)))
		}
		lanes[0] = max(lanes[0], plain(from, to))
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

// meanBlock is the number of elements of which MeanOf adds up the summands at once: they stay in
// the innermost cache.
const meanBlock = 2048

// MeanOf is MeanFixed of the sums of several sources, of type Int64; or of type Float32, of which
// AddFixed makes summands with 1/factor.
func MeanOf(dst []byte, t Type, sources [][]byte, factor float64, count int) {
	n := elements(Float32, dst)
	for _, s := range sources {
		checkLength(n, t, s)
	}
	chosen.meanOfAll(n, dst, t, sources, factor, float64(count))
}

func (v *variant) meanOfAll(n int, dst []byte, t Type, sources [][]byte, factor, count float64) {
	if t == Int64 && len(sources) == 1 {
		v.meanFixedAll(n, dst, sources[0], factor, count)
		return
	}
	sums := make([]byte, Int64.Size()*min(n, meanBlock))
	for from := 0; from < n; from += meanBlock {
		to := min(from+meanBlock, n)
		sums := cut(sums, Int64, 0, to-from)
		for i, s := range sources {
			part := cut(s, t, from, to)
			switch {
			case t == Float32 && i == 0:
				v.addFixedAll(firstKernel, to-from, sums, part, 1/factor)
			case t == Float32:
				v.addFixedAll(fixedKernel, to-from, sums, part, 1/factor)
			case i == 1:
				v.combineAll(Int64, OpSum, to-from, sums, cut(sources[0], t, from, to), part)
			case i > 1:
				v.combineAll(Int64, OpSum, to-from, sums, sums, part)
			}
		}
		v.meanFixedAll(to-from, cut(dst, Float32, from, to), sums, factor, count)
	}
}
