//go:build cgo

package main

// #include <stdint.h>
import "C"

import (
	"math"
	"unsafe"

	"github.com/regroup-io/regroup/collective/kernel"
)

//export rgo_fixed_add
func rgo_fixed_add(totals *C.int64_t, values *C.float, n C.int64_t, shift, takeAway C.int32_t, largest *C.float) C.int {
	switch {
	case n < 0, n > 0 && (totals == nil || values == nil):
		return answer(invalidf("%d values, without memory for them", int64(n)))
	case largest == nil:
		return answer(invalidf("nowhere to put the largest value"))
	case shift < -1022 || shift > 1023:
		return answer(invalidf("shift %d is outside of -1022 to 1023", int(shift)))
	}
	factor := math.Ldexp(1, int(shift))
	if takeAway != 0 {
		factor = -factor
	}
	*largest = C.float(kernel.AddFixed(bytesAt(totals, 8*n), bytesAt(values, 4*n), factor))
	return answer(nil)
}

//export rgo_fixed_mean
func rgo_fixed_mean(totals *C.int64_t, values *C.float, n C.int64_t, shift C.int32_t, summands C.int64_t) C.int {
	switch {
	case n < 0, n > 0 && (totals == nil || values == nil):
		return answer(invalidf("%d values, without memory for them", int64(n)))
	case shift < -1022 || shift > 1022: // the greatest whose inverse is no subnormal
		return answer(invalidf("shift %d is outside of -1022 to 1022", int(shift)))
	case summands < 1:
		return answer(invalidf("a mean of %d summands", int64(summands)))
	}
	kernel.MeanFixed(bytesAt(values, 4*n), bytesAt(totals, 8*n), math.Ldexp(1, -int(shift)), int(summands))
	return answer(nil)
}

// bytesAt is the memory of so many bytes from a pointer on.
func bytesAt[T any](p *T, n C.int64_t) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), int(n))
}
