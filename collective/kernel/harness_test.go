package kernel

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unsafe"
)

var (
	allTypes  = []Type{Int8, Uint8, Int16, Int32, Int64, Float16, BFloat16, Float32, Float64}
	allFloats = []Type{Float16, BFloat16, Float32, Float64}
	allHalves = []Type{Float16, BFloat16}
	allOps    = []Op{OpSum, OpProduct, OpMin, OpMax}
)

// special has the bits that deserve a look, for every type.
var special = map[Type][]uint64{
	Int8:  {0, 1, 0x7f, 0x80, 0x81, 0xff},
	Uint8: {0, 1, 0x7f, 0x80, 0x81, 0xff},
	Int16: {0, 1, 0xff, 0x100, 0x7fff, 0x8000, 0x8001, 0xffff},
	Int32: {0, 1, 0xffff, 0x10000, 0x7fffffff, 0x80000000, 0x80000001, 0xffffffff},
	Int64: {0, 1, 0xffffffff, 1 << 32, 1<<63 - 1, 1 << 63, 1<<63 + 1, 1<<64 - 1, 0x123456789abcdef0},
	// Each float: zero, the least, the greatest subnormal, the least normal, one, the number after
	// it, the greatest, infinity, a signalling NaN, a quiet one, a NaN with all bits; then all
	// negative.
	Float16:  negative(15, 0, 1, 0x3ff, 0x400, 0x3c00, 0x3c01, 0x7bff, 0x7c00, 0x7c01, 0x7e00, 0x7fff),
	BFloat16: negative(15, 0, 1, 0x7f, 0x80, 0x3f80, 0x3f81, 0x7f7f, 0x7f80, 0x7f81, 0x7fc0, 0x7fff),
	Float32: negative(31, 0, 1, 0x7fffff, 0x800000, 0x3f800000, 0x3f800001, 0x7f7fffff, 0x7f800000,
		0x7f800001, 0x7fc00000, 0x7fffffff),
	Float64: negative(63, 0, 1, 1<<52-1, 1<<52, 0x3ff<<52, 0x3ff<<52+1, 0x7ff<<52-1, 0x7ff<<52,
		0x7ff<<52+1, 0xfff<<51, 1<<63-1),
}

func negative(signBit int, positive ...uint64) []uint64 {
	all := positive
	for _, bits := range positive {
		all = append(all, bits|1<<signBit)
	}
	return all
}

// random is one of three: bits that deserve a look, any bits, a number of usual size.
func random(rng *rand.Rand, t Type) uint64 {
	bits := rng.Uint64()
	switch rng.IntN(4) {
	case 0:
		return special[t][rng.IntN(len(special[t]))]
	case 1: // exponents near one, so that sums round
		switch t {
		case Float16:
			bits = bits&^0x7c00 | (13+bits>>32%4)<<10
		case BFloat16:
			bits = bits&^0x7f80 | (125+bits>>32%4)<<7
		case Float32:
			bits = bits&^(0xff<<23) | (125+bits>>60%4)<<23
		case Float64:
			bits = bits&^(0x7ff<<52) | (1021+bits>>62)<<52
		}
	}
	return bits & (1<<(8*t.Size()) - 1)
}

// fenced is a buffer that starts so many bytes after a multiple of 64, between guards.
type fenced struct{ all, body []byte }

const guard = 0xa5

func fence(offset, length int) fenced {
	all := bytes.Repeat([]byte{guard}, length+3*64)
	start := 64 + (offset-int(uintptr(unsafe.Pointer(&all[0]))%64)+64)%64
	return fenced{all[start-64:], all[start:][:length:length]}
}

func (f fenced) check(t *testing.T) {
	t.Helper()
	for i, b := range f.all {
		if (i < 64 || i >= 64+len(f.body)) && b != guard {
			t.Fatalf("the byte at %d of a buffer of %d was written", i-64, len(f.body))
		}
	}
}

// fill makes n random elements.
func fill(rng *rand.Rand, t Type, offset, n int) fenced {
	f := fence(offset, n*t.Size())
	for i := range n {
		put(t, f.body, i, random(rng, t))
	}
	return f
}

// expect checks every element of got.
func expect(t *testing.T, elem Type, got []byte, want func(i int) uint64) {
	t.Helper()
	for i := range len(got) / elem.Size() {
		if g, w := get(elem, got, i), want(i); !same(elem, g, w) {
			t.Fatalf("[%d of %d] = %#x, want %#x", i, len(got)/elem.Size(), g, w)
		}
	}
}

// each runs a test for every variant that the machine has.
func each(t *testing.T, test func(t *testing.T, v *variant)) {
	for _, v := range variants() {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			test(t, v)
		})
	}
}

func source() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// lengths of elements: whole vectors and all that can be left over.
func lengths() []int {
	all := []int{1023, 4097}
	for n := range 301 {
		all = append(all, n)
	}
	return all
}
