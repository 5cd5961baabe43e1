package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// fixed adds float32 times a power of two to int64, and keeps the largest bits of magnitudes by
// lane in memory at b, as unsigned integers: those of a NaN are above those of infinity. The first
// of several overwrites what was there.
func (i *isa) fixed(name string, first bool) {
	i.open(name)
	d, s := pointer("dst", 2*i.bytes), pointer("a", i.bytes)
	kept := Mem{Base: Load(Param("b"), GP64())}
	factor, most, magnitude := i.wide(), i.wide(), i.constant(0x7fffffff)
	VBROADCASTSD(Load(Param("factor"), XMM()), factor)
	VMOVUPS(kept, most)
	integer := i.integers(i)
	loop(i.bytes/4, []stream{d, s}, func(k int) {
		all := i.wide()
		VMOVUPS(s.at(k), all)
		VANDPS(magnitude, all, all)
		VPMAXUD(all, most, most)
		for half := range 2 {
			from, to := s.at(k), d.at(k)
			from.Disp += half * i.bytes / 2
			to.Disp += half * i.bytes
			if half == 0 {
				ahead(from, 1)
			}
			ahead(to, 2)
			v := i.wide()
			VCVTPS2PD(from, v)
			VMULPD(factor, v, v)
			v = integer(v)
			if !first {
				VPADDQ(to, v, v)
			}
			VMOVUPS(v, to)
		}
	})
	VMOVUPS(most, kept)
	leave()
}

// ahead has memory fetched that is used a page of gradients later, where a page has so many. The
// processor does so itself, but not beyond the end of a page: a tenth of the time for totals that a
// backward pass has driven from the inner caches.
func ahead(m Mem, pages int) {
	m.Disp += pages * 4096
	PREFETCHT0(m)
}

// largest copies float32, and keeps the largest bits of magnitudes as fixed does.
func (i *isa) largest() {
	i.open("largest")
	d, s := pointer("dst", i.bytes), pointer("a", i.bytes)
	kept := Mem{Base: Load(Param("b"), GP64())}
	most, magnitude := i.wide(), i.constant(0x7fffffff)
	VMOVUPS(kept, most)
	loop(i.bytes/4, []stream{d, s}, func(k int) {
		v := i.wide()
		VMOVUPS(s.at(k), v)
		VMOVUPS(v, d.at(k))
		VANDPS(magnitude, v, v)
		VPMAXUD(v, most, most)
	})
	VMOVUPS(most, kept)
	leave()
}

// integers64 has an instruction in AVX-512, which rounds to nearest, ties to even.
func integers64(*isa) func(reg.VecVirtual) reg.VecVirtual {
	return func(v reg.VecVirtual) reg.VecVirtual {
		VCVTPD2QQ(v, v)
		return v
	}
}

// integersInHalves: what AVX2 can round is at most 2^51, by adding a number whose last bit is a
// one. So a double up to 2^62 is cut in two there, as hi*2^32 + lo, of which hi*2^32 is even: lo
// rounds as the whole.
func integersInHalves(i *isa) func(reg.VecVirtual) reg.VecVirtual {
	down, up := i.constant64(0x3df0000000000000), i.constant64(0x41f0000000000000) // 2^-32, 2^32
	shifter := i.constant64(0x4338000000000000)                                    // 1.5 * 2^52
	return func(v reg.VecVirtual) reg.VecVirtual {
		high, whole := i.wide(), i.wide()
		VMULPD(down, v, high)
		VADDPD(shifter, high, high)
		VSUBPD(shifter, high, whole)
		VMULPD(up, whole, whole)
		VSUBPD(whole, v, v)
		VADDPD(shifter, v, v)
		VPSUBQ(shifter, v, v)
		VPSUBQ(shifter, high, high)
		VPSLLQ(Imm(32), high, high)
		VPADDQ(high, v, v)
		return v
	}
}

// mean makes float32 of int64: their float64 times factor, divided by the float64 at b.
func (i *isa) mean() {
	i.open("mean")
	d, s := pointer("dst", i.bytes/2), pointer("a", i.bytes)
	factor, count := i.wide(), i.wide()
	VBROADCASTSD(Mem{Base: Load(Param("b"), GP64())}, count)
	VBROADCASTSD(Load(Param("factor"), XMM()), factor)
	double := i.doubles(i)
	loop(i.bytes/8, []stream{d, s}, func(k int) {
		v := i.wide()
		VMOVUPS(s.at(k), v)
		v = double(v)
		VMULPD(factor, v, v)
		VDIVPD(count, v, v)
		i.singles(v, d.at(k))
	})
	leave()
}

// doubles64 has an instruction in AVX-512, which rounds to nearest, ties to even.
func doubles64(*isa) func(reg.VecVirtual) reg.VecVirtual {
	return func(v reg.VecVirtual) reg.VecVirtual {
		VCVTQQ2PD(v, v)
		return v
	}
}

// doublesOfHalves: AVX2 has none, but 32 bits below the exponent of 2^52 are a double, and so are
// those of the upper half below that of 2^84. What this adds is taken off the upper half, which is
// exact, so that the sum of both is rounded once.
func doublesOfHalves(i *isa) func(reg.VecVirtual) reg.VecVirtual {
	lower, low := i.constant64(0x00000000ffffffff), i.constant64(0x4330000000000000)  // 2^52
	high, added := i.constant64(0x4530000080000000), i.constant64(0x4530000080100000) // 2^84 + 2^63, and 2^52 more
	return func(v reg.VecVirtual) reg.VecVirtual {
		upper := i.wide()
		VPSRLQ(Imm(32), v, upper)
		VPXOR(high, upper, upper)
		VSUBPD(added, upper, upper)
		VPAND(lower, v, v)
		VPOR(low, v, v)
		VADDPD(upper, v, v)
		return v
	}
}
