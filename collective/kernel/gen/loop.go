package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// stretch is the number of vectors per turn of the main loop.
const stretch = 4

// stream is a pointer that advances with the loop.
type stream struct {
	base   reg.Register
	stride int // bytes per vector
}

func (s stream) at(vector int) Mem { return Mem{Base: s.base, Disp: vector * s.stride} }

// open declares a kernel. All have the arguments of the function that calls them by number (see
// table), of which each uses some: what has one source calls it a. A kernel does as many whole
// vectors as n has, and returns how many elements these are.
func (i *isa) open(name string) {
	TEXT(i.symbol(name), NOSPLIT, "func(kernel int, dst, a, b *byte, n int, factor float64) (done int)")
}

func pointer(argument string, stride int) stream {
	return stream{Load(Param(argument), GP64()), stride}
}

// loop calls vector for each vector of the streams, of lanes elements each.
func loop(lanes int, streams []stream, vector func(k int)) {
	n := Load(Param("n"), GP64())
	ANDQ(I32(-lanes), n)
	Store(n, ReturnIndex(0))
	turn := func(label, end string, vectors int) {
		SUBQ(I32(vectors*lanes), n)
		JB(LabelRef(end))
		Label(label)
		for k := range vectors {
			vector(k)
		}
		for _, s := range streams {
			ADDQ(I32(vectors*s.stride), s.base)
		}
		SUBQ(I32(vectors*lanes), n)
		JAE(LabelRef(label))
		Label(end)
	}
	turn("stretch", "rest", stretch)
	ADDQ(I32(stretch*lanes), n)
	turn("single", "end", 1)
}

func leave() {
	VZEROUPPER()
	RET()
}

// combine makes dst = a op b. Each of the three has its own format.
func (i *isa) combine(name string, dst, a, b format, o operation) {
	i.open(name)
	lanes := dst.lanes(i)
	d, x, y := pointer("dst", lanes*dst.size), pointer("a", lanes*a.size), pointer("b", lanes*b.size)
	do, store := o.setup(i), dst.storer(i)
	loop(lanes, []stream{d, x, y}, func(k int) {
		v, w, result := i.wide(), i.wide(), i.wide()
		a.load(x.at(k), v)
		b.load(y.at(k), w)
		do(i, v, w, result)
		store(result, d.at(k))
	})
	leave()
}

// convert makes dst = src in another format.
func (i *isa) convert(name string, dst, src format) {
	i.open(name)
	lanes := dst.lanes(i)
	d, s := pointer("dst", lanes*dst.size), pointer("a", lanes*src.size)
	store := dst.storer(i)
	loop(lanes, []stream{d, s}, func(k int) {
		v := i.wide()
		src.load(s.at(k), v)
		store(v, d.at(k))
	})
	leave()
}

// scale multiplies dst by a factor that is first rounded to what the lanes hold.
func (i *isa) scale(f format, multiply func(...Op)) {
	i.open(f.name + "Scale")
	lanes := f.lanes(i)
	d := pointer("dst", lanes*f.size)
	one, factor := Load(Param("factor"), XMM()), i.wide()
	if f.lane == 8 {
		VBROADCASTSD(one, factor)
	} else {
		VCVTSD2SS(one, one, one)
		VBROADCASTSS(one, factor)
	}
	store := f.storer(i)
	loop(lanes, []stream{d}, func(k int) {
		v := i.wide()
		f.load(d.at(k), v)
		multiply(factor, v, v)
		store(v, d.at(k))
	})
	leave()
}

// stream copies past the caches. dst must lie on a multiple of the vector.
func (i *isa) stream() {
	i.open("stream")
	d, s := pointer("dst", i.bytes), pointer("a", i.bytes)
	loop(i.bytes, []stream{d, s}, func(k int) {
		v := i.wide()
		VMOVUPS(s.at(k), v)
		VMOVNTPS(v, d.at(k))
	})
	SFENCE() // such stores are not ordered with others
	leave()
}
