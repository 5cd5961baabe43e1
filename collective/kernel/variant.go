package kernel

import "unsafe"

// variant is the assembly for one instruction set. call runs a kernel by its number, and passes it
// those of the arguments that it uses. It does as many whole vectors as there are elements for, and
// returns how many elements that are. nil: plain Go does everything, and not only the rest.
type variant struct {
	name string
	call func(kernel int, dst, a, b *byte, n int, factor float64) (done int)
}

// The numbers of kernels, as gen counts them: for each type those that combine, then those that
// scale floats, and for Float16 and BFloat16 those that narrow, widen, and combine what they widen.
const (
	firstScale    = int(types-Int8) * int(ops)
	firstHalf     = firstScale + int(types-Float16)
	halfKernels   = 2 + int(ops)
	streamKernel  = firstHalf + 2*halfKernels
	fixedKernel   = streamKernel + 1
	firstKernel   = fixedKernel + 1
	largestKernel = firstKernel + 1
	meanKernel    = largestKernel + 1
)

func combineKernel(t Type, op Op) int { return int(t-Int8)*int(ops) + int(op) }
func scaleKernel(t Type) int          { return firstScale + int(t-Float16) }
func narrowKernel(t Type) int         { return firstHalf + int(t-Float16)*halfKernels }
func widenKernel(t Type) int          { return narrowKernel(t) + 1 }

func reduceWidenKernel(t Type, op Op) int { return widenKernel(t) + 1 + int(op) }

// chosen is the best of what this machine has.
var chosen = func() *variant {
	all := variants()
	return all[len(all)-1]
}()

// piece is the number of elements per call of assembly. The scheduler cannot interrupt
// assembly, and a garbage collection stops all goroutines: a sum of 256 MiB in one call
// made the others wait for 47 ms, in pieces for 3.
const piece = 128 << 10

// inPieces calls do for each piece of n elements.
func inPieces(n int, do func(from, to int)) {
	for from := 0; from < n; from += piece {
		do(from, min(from+piece, n))
	}
}

// at is the address of the i-th element.
func at(b []byte, t Type, i int) *byte { return unsafe.SliceData(b[i*t.Size():]) }

// cut is the elements from i up to j.
func cut(b []byte, t Type, i, j int) []byte { return b[i*t.Size() : j*t.Size()] }

// few is the number of elements that are done sooner than assembly is called.
const few = 8

func (v *variant) combineAll(t Type, op Op, n int, dst, a, b []byte) {
	if n <= few {
		combine(t, op, dst, a, b)
		return
	}
	inPieces(n, func(from, to int) {
		if v.call != nil {
			from += v.call(combineKernel(t, op), at(dst, t, from), at(a, t, from), at(b, t, from), to-from, 0)
		}
		combine(t, op, cut(dst, t, from, to), cut(a, t, from, to), cut(b, t, from, to))
	})
}

func (v *variant) reduceWidenAll(t Type, op Op, n int, dst, src []byte) {
	inPieces(n, func(from, to int) {
		if v.call != nil {
			d := at(dst, Float32, from)
			from += v.call(reduceWidenKernel(t, op), d, d, at(src, t, from), to-from, 0)
		}
		reduceWiden(t, op, cut(dst, Float32, from, to), cut(src, t, from, to))
	})
}

func (v *variant) narrowAll(t Type, n int, dst, src []byte) {
	inPieces(n, func(from, to int) {
		if v.call != nil {
			from += v.call(narrowKernel(t), at(dst, t, from), at(src, Float32, from), nil, to-from, 0)
		}
		narrow(t, cut(dst, t, from, to), cut(src, Float32, from, to))
	})
}

func (v *variant) widenAll(t Type, n int, dst, src []byte) {
	inPieces(n, func(from, to int) {
		if v.call != nil {
			from += v.call(widenKernel(t), at(dst, Float32, from), at(src, t, from), nil, to-from, 0)
		}
		widen(t, cut(dst, Float32, from, to), cut(src, t, from, to))
	})
}

func (v *variant) scaleAll(t Type, n int, dst []byte, factor float64) {
	inPieces(n, func(from, to int) {
		if v.call != nil {
			from += v.call(scaleKernel(t), at(dst, t, from), nil, nil, to-from, factor)
		}
		scale(t, cut(dst, t, from, to), factor)
	})
}

const (
	line = 64 // bytes of a cache line, and of the widest vector
	// streamPiece is to bytes what piece is to elements.
	streamPiece = 1 << 20
)

// Stream copies src to dst, which do not overlap and are of one length, past the caches:
// for one piece of something much larger than the caches, of which nobody reads the copy
// soon. It saves reading what is overwritten.
func Stream(dst, src []byte) {
	checkLength(len(dst), Uint8, src)
	chosen.streamAll(dst, src)
}

func (v *variant) streamAll(dst, src []byte) {
	if v.call == nil || len(dst) < 2*line {
		copy(dst, src)
		return
	}
	// The assembly stores whole lines: what is before the first one goes ahead.
	head := int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst))) % line)
	copy(dst[:head], src[:head])
	dst, src = dst[head:], src[head:]
	for len(dst) > 0 {
		n := min(streamPiece, len(dst))
		done := v.call(streamKernel, unsafe.SliceData(dst), unsafe.SliceData(src), nil, n, 0)
		copy(dst[done:n], src[done:n])
		dst, src = dst[n:], src[n:]
	}
}
