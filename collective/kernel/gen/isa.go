package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa is an instruction set: the width of its vectors, and the few things that are
// said differently in each. All else has one mnemonic for both.
type isa struct {
	name  string
	bytes int
	wide  func() reg.VecVirtual // a register
	mask  func() reg.Register   // what a comparison makes
	// blend takes yes where the mask is set; lane is the size of what was compared.
	blend func(lane int, mask, yes, no, dst reg.Register)
	// words stores the lower half of each 32-bit lane.
	words func(v reg.VecVirtual, to Mem)
	// AVX2 has neither a product, nor a minimum and maximum of 64-bit lanes.
	product64, min64, max64 binary
	// integers rounds 64-bit floats to integers, of up to 63 bits with the sign.
	integers func(*isa) func(reg.VecVirtual) reg.VecVirtual
	// doubles does the reverse, for all 64 bits.
	doubles func(*isa) func(reg.VecVirtual) reg.VecVirtual
	// singles stores 64-bit floats as 32-bit ones.
	singles func(v reg.VecVirtual, to Mem)
}

var isas = map[string]*isa{
	"AVX2": {
		name:  "AVX2",
		bytes: 32,
		wide:  YMM,
		mask:  func() reg.Register { return YMM() },
		blend: func(_ int, mask, yes, no, dst reg.Register) { VBLENDVPS(mask, yes, no, dst) },
		words: func(v reg.VecVirtual, to Mem) {
			// The pack works in each half of the register: the permutation brings the halves
			// together.
			VPACKUSDW(v, v, v)
			VPERMQ(Imm(0b1000), v, v)
			VMOVUPS(v.AsX(), to)
		},
		product64: product64,
		min64:     func(_ *isa, a, b, dst reg.VecVirtual) { pick64(a, b, dst, b, a) },
		max64:     func(_ *isa, a, b, dst reg.VecVirtual) { pick64(a, b, dst, a, b) },
		integers:  integersInHalves,
		doubles:   doublesOfHalves,
		singles: func(v reg.VecVirtual, to Mem) {
			VCVTPD2PSY(v, v.AsX())
			VMOVUPS(v.AsX(), to)
		},
	},
	"AVX512": {
		name:  "AVX512",
		bytes: 64,
		wide:  ZMM,
		mask:  func() reg.Register { return K() },
		blend: func(lane int, mask, yes, no, dst reg.Register) {
			if lane == 8 {
				VBLENDMPD(yes, no, mask, dst)
			} else {
				VBLENDMPS(yes, no, mask, dst)
			}
		},
		words:     func(v reg.VecVirtual, to Mem) { VPMOVDW(v, to) },
		product64: simple(VPMULLQ),
		min64:     simple(VPMINSQ),
		max64:     simple(VPMAXSQ),
		integers:  integers64,
		doubles:   doubles64,
		singles: func(v reg.VecVirtual, to Mem) {
			VCVTPD2PS(v, v.AsY())
			VMOVUPS(v.AsY(), to)
		},
	},
}

// pick64 is greater where a > b, else other.
func pick64(a, b, dst, greater, other reg.VecVirtual) {
	more := YMM()
	VPCMPGTQ(b, a, more)
	VBLENDVPD(more, greater, other, dst)
}

// product64 adds the three partial products of 32-bit halves that reach the lower 64 bits.
func product64(_ *isa, a, b, dst reg.VecVirtual) {
	cross, low := YMM(), YMM()
	VPSHUFD(Imm(0b10_11_00_01), b, cross) // the halves of b swapped
	VPMULLD(cross, a, cross)              // low a * high b, high a * low b
	VPSRLQ(Imm(32), cross, low)
	VPADDD(cross, low, cross)
	VPSLLQ(Imm(32), cross, cross)
	VPMULUDQ(b, a, low)
	VPADDQ(cross, low, dst)
}

// constant fills a register with copies of bits.
func (i *isa) constant(bits uint32) reg.VecVirtual {
	r, x, v := GP32(), XMM(), i.wide()
	MOVL(U32(bits), r)
	VMOVD(r, x)
	VPBROADCASTD(x, v)
	return v
}

// constant64 fills a register with copies of bits.
func (i *isa) constant64(bits uint64) reg.VecVirtual {
	r, x, v := GP64(), XMM(), i.wide()
	MOVQ(U64(bits), r)
	VMOVQ(r, x)
	VPBROADCASTQ(x, v)
	return v
}
