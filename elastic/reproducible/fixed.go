package reproducible

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/regroup-io/regroup/collective/kernel"
)

const (
	// headroom is how many times 2 a gradient may grow from one step to the next before its shift
	// no longer fits.
	headroom = 12
	// precision is how many bits of the largest gradient must be left: float32 has as many.
	precision = 24
	// maxSummands leaves precision bits to the largest gradient when it is new.
	maxSummands = 1 << (62 - headroom - precision)
	// absent is the magnitude of a part of which nothing is known.
	absent = -1
)

// bitsFor returns how many bits of an integer are for the largest magnitude, so that so many
// summands, each of them 2^room times as large, fit.
func bitsFor(summands, room int) int { return 62 - room - bits.Len(uint(summands-1)) }

// shiftFor returns the shift at which summands of at most so large a magnitude can be added, even
// if they are 2^headroom times as large.
func shiftFor(magnitude float32, summands int) int {
	_, exponent := math.Frexp(float64(magnitude))
	return bitsFor(summands, headroom) - exponent
}

// fits reports whether summands of at most so large a magnitude can be added at a shift, and have
// precision bits.
func fits(magnitude float32, shift, summands int) bool {
	if magnitude <= 0 {
		return true
	}
	_, exponent := math.Frexp(float64(magnitude))
	used := exponent + shift
	return precision <= used && used <= bitsFor(summands, 0)
}

// add adds a gradient to a total, and returns its magnitude: infinite if an element is not finite.
func add(total []int64, gradient []float32, shift int) float32 {
	return kernel.AddFixed(bytesOf(total), bytesOf(gradient), math.Ldexp(1, shift))
}

// magnitude returns what add returns.
func magnitude(gradient []float32) float32 {
	var most uint32
	for _, g := range gradient {
		most = max(most, math.Float32bits(g)&^(1<<31))
	}
	if f := math.Float32frombits(most); f == f {
		return f
	}
	return float32(math.Inf(1))
}

func infinite(magnitude float32) bool { return math.IsInf(float64(magnitude), 1) }

// scale multiplies a gradient, rounding once.
func scale(gradient []float32, by float64) {
	for i, g := range gradient {
		gradient[i] = float32(float64(g) * by)
	}
}

func bytesOf[T int64 | float32](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}
