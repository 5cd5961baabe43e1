package kernel

import "unsafe"

// Number is what Sum, Min, Max and Divide compute with. They serve callers that have
// slices of numbers, until these move to bytes.
type Number interface {
	~float32 | ~float64 | ~int32 | ~int64
}

// Sum adds src to dst. src must be at least as long as dst; it panics otherwise.
func Sum[T Number](dst, src []T) { reduce(OpSum, dst, src) }

// Min stores the lesser of each pair in dst. src must be at least as long as dst.
func Min[T Number](dst, src []T) { reduce(OpMin, dst, src) }

// Max stores the greater of each pair in dst. src must be at least as long as dst.
func Max[T Number](dst, src []T) { reduce(OpMax, dst, src) }

// Divide is Average. n >= 1.
func Divide[T Number](dst []T, n int) { Average(typeOf[T](), memory(dst), n) }

// IsFloat tells floats from integers, also for named types, which a type switch
// on any(T) would miss.
func IsFloat[T Number]() bool {
	one, two := T(1), T(2)
	return one/two != 0
}

func reduce[T Number](op Op, dst, src []T) {
	Reduce(typeOf[T](), op, memory(dst), memory(src[:len(dst)]))
}

func typeOf[T Number]() Type {
	var zero T
	wide := unsafe.Sizeof(zero) == 8
	switch {
	case IsFloat[T]() && wide:
		return Float64
	case IsFloat[T]():
		return Float32
	case wide:
		return Int64
	}
	return Int32
}

func memory[T Number](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}
