package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const unordered = 3 // the predicate of VCMPPS: one of the two is a NaN

// binary computes dst = a op b.
type binary func(i *isa, a, b, dst reg.VecVirtual)

// operation makes its binary before the loop, where it can fill constants.
type operation struct {
	name  string
	setup func(*isa) binary
}

// number is a type with its four operations.
type number struct {
	name       string
	format     format
	operations []operation
}

func simple(instruction func(...Op)) binary {
	return func(_ *isa, a, b, dst reg.VecVirtual) { instruction(b, a, dst) }
}

func both(instruction func(...Op)) func(*isa) binary {
	return func(*isa) binary { return simple(instruction) }
}

func four(sum, product, least, greatest func(*isa) binary) []operation {
	return []operation{{"Sum", sum}, {"Product", product}, {"Min", least}, {"Max", greatest}}
}

var (
	singles = four(both(VADDPS), both(VMULPS), floatMin(VMINPS), floatMax(4, VMAXPS, VCMPPS, 0x7fc00000))
	doubles = four(both(VADDPD), both(VMULPD), floatMin(VMINPD), floatMax(8, VMAXPD, VCMPPD, 0x7ff80000))
	bytes   = four(both(VPADDB), productOfBytes, both(VPMINSB), both(VPMAXSB))
	longs   = four(both(VPADDQ),
		func(i *isa) binary { return i.product64 },
		func(i *isa) binary { return i.min64 },
		func(i *isa) binary { return i.max64 })
)

var numbers = []number{
	{"int8", plain("int8", 1), bytes},
	{"uint8", plain("uint8", 1), []operation{{"Min", both(VPMINUB)}, {"Max", both(VPMAXUB)}}}, // the rest is int8's
	{"int16", plain("int16", 2), four(both(VPADDW), both(VPMULLW), both(VPMINSW), both(VPMAXSW))},
	{"int32", plain("int32", 4), four(both(VPADDD), both(VPMULLD), both(VPMINSD), both(VPMAXSD))},
	{"int64", plain("int64", 8), longs},
	{"float16", float16, singles},
	{"bfloat16", bfloat16, singles},
	{"float32", single, singles},
	{"float64", double, doubles},
}

// productOfBytes multiplies the even and the odd bytes as 16-bit lanes.
func productOfBytes(i *isa) binary {
	lower := i.constant(0x00ff00ff)
	return func(i *isa, a, b, dst reg.VecVirtual) {
		x, y := i.wide(), i.wide()
		VPSRLW(Imm(8), a, x)
		VPSRLW(Imm(8), b, y)
		VPMULLW(x, y, x)
		VPSLLW(Imm(8), x, x)
		VPMULLW(a, b, y)
		VANDPS(lower, y, y)
		VORPS(x, y, dst)
	}
}

// floatMin: the instruction returns its second operand when one is a NaN or both are
// zeroes. The two orders together have all bits of a NaN, and the sign of -0.
func floatMin(instruction func(...Op)) func(*isa) binary {
	return func(i *isa) binary {
		return func(i *isa, a, b, dst reg.VecVirtual) {
			other := i.wide()
			instruction(b, a, other)
			instruction(a, b, dst)
			VORPS(other, dst, dst)
		}
	}
}

// floatMax: the same with and, for +0, which spoils a NaN: it is put back.
func floatMax(lane int, instruction, compare func(...Op), nan uint32) func(*isa) binary {
	return func(i *isa) binary {
		nans := i.constant(nan)
		return func(i *isa, a, b, dst reg.VecVirtual) {
			other, isNaN := i.wide(), i.mask()
			compare(Imm(unordered), a, b, isNaN)
			instruction(b, a, other)
			instruction(a, b, dst)
			VANDPS(other, dst, dst)
			i.blend(lane, isNaN, nans, dst, dst)
		}
	}
}
