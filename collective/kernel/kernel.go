// Package kernel does arithmetic on the elements of whole buffers: what an allreduce
// does with numbers between receiving and sending them.
//
// Buffers are bytes, because the engine moves bytes; a [Type] says what they hold, in
// the byte order of the machine. They may start at any address. Lengths that do not
// fit each other are a bug of the caller: panic.
//
// # Rules
//
//   - Sum, product: integers wrap around. Floats follow IEEE 754, so a NaN anywhere
//     makes the result NaN, and so do Inf + -Inf and 0 * Inf.
//   - Min, max: a NaN on either side makes the result NaN; -0 is less than +0.
//   - Float16 and BFloat16 are computed with as float32, and rounded once per
//     operation, to nearest, ties to even. Too large is Inf.
//   - Average multiplies floats by 1/n, which is computed in float64 and rounded once to
//     the type of the computation. Integers are divided and truncated toward zero.
//   - Subnormal numbers are kept, unless a C library has told the processor otherwise
//     for its thread.
//
// Every processor gives the same bits, except for a NaN: that it is one is promised,
// its sign and payload are not.
//
// # Where the speed comes from
//
// On amd64 all of it is assembly, for AVX2 with F16C and for AVX-512, chosen when the
// program starts, except:
//
//	Average of integers                    no vector unit divides integers
//	what is left after whole vectors       at most 63 bytes of a call
//	up to eight elements                   the call costs more
//
// These, other processors, and every build with the race detector, which cannot see
// into assembly, use plain Go.
//
// AVX-512 has an instruction for bfloat16, VCVTNEPS2BF16, which flushes subnormals: it
// is not used.
package kernel

import "fmt"

//go:generate go run -C gen . -isa AVX2 -pkg kernel -out ../avx2_amd64.s
//go:generate go run -C gen . -isa AVX512 -pkg kernel -out ../avx512_amd64.s

// Reduce makes dst = dst op src. The two do not overlap, unless they are the same.
func Reduce(t Type, op Op, dst, src []byte) { Combine(t, op, dst, dst, src) }

// Combine makes dst = a op b. dst may be a or b, but not overlap them otherwise.
func Combine(t Type, op Op, dst, a, b []byte) {
	checkOp(op)
	n := elements(t, dst)
	checkLength(n, t, a)
	checkLength(n, t, b)
	chosen.combineAll(t, op, n, dst, a, b)
}

// ReduceWiden makes dst = dst op src, where dst is float32 and src Float16 or BFloat16:
// what arrives compressed is not rounded again.
func ReduceWiden(from Type, op Op, dst, src []byte) {
	checkOp(op)
	checkHalf(from)
	n := elements(from, src)
	checkLength(n, Float32, dst)
	chosen.reduceWidenAll(from, op, n, dst, src)
}

// Narrow makes Float16 or BFloat16 of the float32 in src: to nearest, ties to even.
func Narrow(to Type, dst, src []byte) {
	checkHalf(to)
	n := elements(to, dst)
	checkLength(n, Float32, src)
	chosen.narrowAll(to, n, dst, src)
}

// Widen makes float32 of the Float16 or BFloat16 in src: exact.
func Widen(from Type, dst, src []byte) {
	checkHalf(from)
	n := elements(from, src)
	checkLength(n, Float32, dst)
	chosen.widenAll(from, n, dst, src)
}

// Scale multiplies floats by factor, rounded to the type of the computation: float32,
// or float64 for Float64. Integers have no factor: it panics.
func Scale(t Type, dst []byte, factor float64) {
	if !t.Float() {
		panic(fmt.Sprintf("kernel: scale of %s: only floats have a factor", t))
	}
	chosen.scaleAll(t, elements(t, dst), dst, factor)
}

// Average turns a sum of n contributions into their average. n is at least 1.
func Average(t Type, dst []byte, n int) {
	if n < 1 {
		panic(fmt.Sprintf("kernel: average of %d contributions", n))
	}
	if t.Float() {
		Scale(t, dst, 1/float64(n))
		return
	}
	elements(t, dst)
	divide(t, dst, int64(n))
}

// elements is how many t make up b.
func elements(t Type, b []byte) int {
	n := len(b) >> t.shift()
	if n<<t.shift() != len(b) {
		panic(fmt.Sprintf("kernel: %d bytes are not a whole number of %s", len(b), t))
	}
	return n
}

func checkLength(n int, t Type, b []byte) {
	if len(b) != n<<t.shift() {
		panic(fmt.Sprintf("kernel: %d bytes where %d %s are expected", len(b), n, t))
	}
}

func checkOp(op Op) {
	if op >= ops {
		panic("kernel: no such operation: " + op.String())
	}
}

func checkHalf(t Type) {
	if t != Float16 && t != BFloat16 {
		panic(fmt.Sprintf("kernel: %s where float16 or bfloat16 is expected", t))
	}
}
