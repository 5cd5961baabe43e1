package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// format is how elements lie in memory.
type format struct {
	name string
	size int // in memory
	lane int // in a register: float16 and bfloat16 are computed with as float32
	load func(from Mem, v reg.VecVirtual)
	// storer fills the constants that the store needs, before the loop.
	storer func(*isa) func(v reg.VecVirtual, to Mem)
}

var (
	float16  = format{"float16", 2, 4, loadFloat16, storeFloat16}
	bfloat16 = format{"bfloat16", 2, 4, loadBFloat16, storeBFloat16}
	single   = plain("float32", 4)
	double   = plain("float64", 8)
)

func plain(name string, size int) format {
	move := func(from Mem, v reg.VecVirtual) { VMOVUPS(from, v) }
	store := func(v reg.VecVirtual, to Mem) { VMOVUPS(v, to) }
	return format{name, size, size, move, func(*isa) func(reg.VecVirtual, Mem) { return store }}
}

func (f format) lanes(i *isa) int { return i.bytes / f.lane }

func loadFloat16(from Mem, v reg.VecVirtual) { VCVTPH2PS(from, v) }

func storeFloat16(*isa) func(reg.VecVirtual, Mem) {
	return func(v reg.VecVirtual, to Mem) { VCVTPS2PH(Imm(0), v, to) } // 0: to nearest even
}

func loadBFloat16(from Mem, v reg.VecVirtual) {
	VPMOVZXWD(from, v)
	VPSLLD(Imm(16), v, v)
}

// storeBFloat16 rounds with integers: VCVTNEPS2BF16 of AVX-512 flushes subnormals.
func storeBFloat16(i *isa) func(reg.VecVirtual, Mem) {
	half, one, nan := i.constant(0x7fff), i.constant(1), i.constant(0x7fc0)
	return func(v reg.VecVirtual, to Mem) {
		isNaN, round := i.mask(), i.wide()
		VCMPPS(Imm(unordered), v, v, isNaN)
		VPSRLD(Imm(16), v, round)
		VANDPS(one, round, round)
		VPADDD(half, round, round)
		VPADDD(round, v, round)
		VPSRLD(Imm(16), round, round)
		i.blend(4, isNaN, nan, round, round)
		i.words(round, to)
	}
}
