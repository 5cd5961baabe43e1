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
func rgo_fixed_add(gradients *C.rg_fixed, n C.int64_t) C.int {
	if n < 0 || n > 0 && gradients == nil {
		return answer(invalidf("%d gradients, without memory for them", int64(n)))
	}
	all := unsafe.Slice(gradients, int(n))
	for i := range all {
		g := &all[i]
		switch {
		case g.len < 0, g.len > 0 && (g.to == nil || g.values == nil):
			return answer(invalidf("gradient %d: %d values, without memory for them", i, int64(g.len)))
		case g.shift < -1022 || g.shift > 1023:
			return answer(invalidf("gradient %d: shift %d is outside of -1022 to 1023", i, int(g.shift)))
		case g.how < C.RG_FIXED_ADD || g.how > C.RG_FIXED_COPY:
			return answer(invalidf("gradient %d: how is %d: 0 adds, 1 overwrites, 2 copies", i, int(g.how)))
		}
	}
	for i := range all {
		g := &all[i]
		to, values, factor := (*byte)(g.to), bytesAt(g.values, 4*g.len), math.Ldexp(1, int(g.shift))
		switch g.how {
		case C.RG_FIXED_ADD:
			g.largest = C.float(kernel.AddFixed(bytesAt(to, 8*g.len), values, factor))
		case C.RG_FIXED_FIRST:
			g.largest = C.float(kernel.SetFixed(bytesAt(to, 8*g.len), values, factor))
		case C.RG_FIXED_COPY:
			g.largest = C.float(kernel.CopyLargest(bytesAt(to, 4*g.len), values))
		}
	}
	return answer(nil)
}

//export rgo_fixed_mean
func rgo_fixed_mean(typ C.int32_t, sources *unsafe.Pointer, count C.int32_t, values *C.float, lens *C.int64_t, shifts *C.int32_t, parts C.int32_t, summands C.int64_t) C.int {
	switch {
	case typ != C.RG_INT64 && typ != C.RG_FLOAT32:
		return answer(invalidf("type %d has no means: it is that of int64 or of float32", int(typ)))
	case count < 1 || sources == nil:
		return answer(invalidf("a mean of %d sources", int(count)))
	case parts < 0, parts > 0 && (lens == nil || shifts == nil):
		return answer(invalidf("%d parts, without lengths and shifts", int(parts)))
	case summands < 1:
		return answer(invalidf("a mean of %d summands", int64(summands)))
	}
	t, n := kernel.Int64, C.int64_t(0)
	if typ == C.RG_FLOAT32 {
		t = kernel.Float32
	}
	by := unsafe.Slice(shifts, int(parts))
	for i, length := range unsafe.Slice(lens, int(parts)) {
		switch {
		case length < 0:
			return answer(invalidf("part %d has %d elements", i, int64(length)))
		case by[i] < -1022 || by[i] > 1022: // the greatest whose inverse is no subnormal
			return answer(invalidf("part %d: shift %d is outside of -1022 to 1022", i, int(by[i])))
		}
		n += length
	}
	from := unsafe.Slice(sources, int(count))
	for i, source := range from {
		if n > 0 && (source == nil || values == nil) {
			return answer(invalidf("source %d, or the values, have no memory for %d elements", i, int64(n)))
		}
	}
	of, at := make([][]byte, count), C.int64_t(0)
	for i, length := range unsafe.Slice(lens, int(parts)) {
		for s, source := range from {
			of[s] = bytesAt((*byte)(source), C.int64_t(t.Size())*n)[C.int64_t(t.Size())*at:][:C.int64_t(t.Size())*length]
		}
		kernel.MeanOf(bytesAt(values, 4*n)[4*at:][:4*length], t, of, math.Ldexp(1, -int(by[i])), int(summands))
		at += length
	}
	return answer(nil)
}

// bytesAt is the memory of so many bytes from a pointer on.
func bytesAt[T any](p *T, n C.int64_t) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), int(n))
}
