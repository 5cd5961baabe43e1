//go:build cgo

package main

// #include "regroup.h"
import "C"

import (
	"math"
	"unsafe"

	"github.com/regroup-io/regroup/collective/kernel"
)

//export rgo_fixed_add
func rgo_fixed_add(totals *C.int64_t, values *C.float, n C.int64_t, shift, how C.int32_t, largest *C.float) C.int {
	switch {
	case n < 0, n > 0 && (totals == nil || values == nil):
		return answer(invalidf("%d values, without memory for them", int64(n)))
	case largest == nil:
		return answer(invalidf("nowhere to put the largest value"))
	case shift < -1022 || shift > 1023:
		return answer(invalidf("shift %d is outside of -1022 to 1023", int(shift)))
	}
	add := kernel.AddFixed
	switch how {
	case C.RG_FIXED_ADD:
	case C.RG_FIXED_FIRST:
		add = kernel.SetFixed
	default:
		return answer(invalidf("how is %d: 0 adds, 1 overwrites", int(how)))
	}
	*largest = C.float(add(bytesAt(totals, 8*n), bytesAt(values, 4*n), math.Ldexp(1, int(shift))))
	return answer(nil)
}

//export rgo_fixed_mean
func rgo_fixed_mean(totals *C.int64_t, values *C.float, n C.int64_t, shift C.int32_t, summands C.int64_t) C.int {
	source := unsafe.Pointer(totals)
	return rgo_fixed_mean_of(C.RG_INT64, &source, 1, values, n, shift, summands)
}

//export rgo_fixed_mean_of
func rgo_fixed_mean_of(typ C.int32_t, sources *unsafe.Pointer, count C.int32_t, values *C.float, n C.int64_t, shift C.int32_t, summands C.int64_t) C.int {
	switch {
	case n < 0, n > 0 && values == nil:
		return answer(invalidf("%d values, without memory for them", int64(n)))
	case typ != C.RG_INT64 && typ != C.RG_FLOAT32:
		return answer(invalidf("type %d has no means: it is that of int64 or of float32", int(typ)))
	case count < 1 || sources == nil:
		return answer(invalidf("a mean of %d sources", int(count)))
	case shift < -1022 || shift > 1022: // the greatest whose inverse is no subnormal
		return answer(invalidf("shift %d is outside of -1022 to 1022", int(shift)))
	case summands < 1:
		return answer(invalidf("a mean of %d summands", int64(summands)))
	}
	t, parts := kernel.Int64, make([][]byte, count)
	if typ == C.RG_FLOAT32 {
		t = kernel.Float32
	}
	for i, source := range unsafe.Slice(sources, count) {
		if n > 0 && source == nil {
			return answer(invalidf("source %d has no memory", i))
		}
		parts[i] = bytesAt((*byte)(source), C.int64_t(t.Size())*n)
	}
	kernel.MeanOf(bytesAt(values, 4*n), t, parts, math.Ldexp(1, -int(shift)), int(summands))
	return answer(nil)
}

//export rgo_largest_copy
func rgo_largest_copy(copies, values *C.float, n C.int64_t, largest *C.float) C.int {
	if n < 0 || n > 0 && (copies == nil || values == nil) {
		return answer(invalidf("%d values, without memory for them", int64(n)))
	}
	if largest == nil {
		return answer(invalidf("nowhere to put the largest value"))
	}
	*largest = C.float(kernel.CopyLargest(bytesAt(copies, 4*n), bytesAt(values, 4*n)))
	return answer(nil)
}

// bytesAt is the memory of so many bytes from a pointer on.
func bytesAt[T any](p *T, n C.int64_t) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), int(n))
}
