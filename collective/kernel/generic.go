package kernel

import "unsafe"

// integer and number are the types that Go computes with.
type integer interface {
	int8 | uint8 | int16 | int32 | int64
}

type number interface {
	integer | float32 | float64
}

// chunk is the number of elements in a buffer on the stack.
const chunk = 64

// view is b as elements, if b is aligned for them.
func view[T number](b []byte) (s []T, aligned bool) {
	var zero T
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%unsafe.Alignof(zero) != 0 {
		return nil, false
	}
	return unsafe.Slice((*T)(p), len(b)/int(unsafe.Sizeof(zero))), true
}

// raw is the memory of s.
func raw[T number | uint16](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}

// combine makes dst = a op b in plain Go.
func combine(t Type, op Op, dst, a, b []byte) {
	switch t {
	case Int8:
		combineAs[int8](op, dst, a, b)
	case Uint8:
		combineAs[uint8](op, dst, a, b)
	case Int16:
		combineAs[int16](op, dst, a, b)
	case Int32:
		combineAs[int32](op, dst, a, b)
	case Int64:
		combineAs[int64](op, dst, a, b)
	case Float16, BFloat16:
		combineHalf(t, op, dst, a, b)
	case Float32:
		combineAs[float32](op, dst, a, b)
	case Float64:
		combineAs[float64](op, dst, a, b)
	}
}

// combineAs goes through buffers on the stack if one of the three is not aligned.
func combineAs[T number](op Op, dst, a, b []byte) {
	d, alignedD := view[T](dst)
	x, alignedX := view[T](a)
	y, alignedY := view[T](b)
	if alignedD && alignedX && alignedY {
		apply(op, d, x, y)
		return
	}
	var bufX, bufY [chunk]T
	rawX, rawY := raw(bufX[:]), raw(bufY[:])
	for len(dst) > 0 {
		n := copy(rawX, a)
		copy(rawY, b)
		k := n / (len(rawX) / chunk)
		apply(op, bufX[:k], bufX[:k], bufY[:k])
		copy(dst, rawX[:n])
		dst, a, b = dst[n:], a[n:], b[n:]
	}
}

func apply[T number](op Op, dst, a, b []T) {
	switch op {
	case OpSum:
		sum(dst, a, b)
	case OpProduct:
		product(dst, a, b)
	case OpMin:
		least(dst, a, b)
	case OpMax:
		greatest(dst, a, b)
	}
}
