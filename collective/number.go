package collective

import (
	"fmt"
	"unsafe"

	"github.com/regroup-io/regroup/collective/kernel"
)

// Number is what can be reduced.
type Number interface {
	~float32 | ~float64 | ~int32 | ~int64
}

// Op is how an allreduce combines the ranks' elements. Package kernel states the
// rules for NaN, signed zeroes and overflow.
type Op int

// The reductions.
const (
	Sum Op = iota
	// Average is the sum, then once per element: floats times 1/World, integers
	// divided by World and truncated toward zero.
	Average
	Min
	Max
)

func (o Op) String() string {
	switch o {
	case Sum:
		return "sum"
	case Average:
		return "average"
	case Min:
		return "min"
	case Max:
		return "max"
	}
	return fmt.Sprintf("Op(%d)", int(o))
}

// dtype is the type of the elements on the wire.
type dtype uint8

const (
	bytesType dtype = iota
	float32Type
	float64Type
	int32Type
	int64Type
)

func (d dtype) String() string {
	switch d {
	case bytesType:
		return "bytes"
	case float32Type:
		return "float32"
	case float64Type:
		return "float64"
	case int32Type:
		return "int32"
	case int64Type:
		return "int64"
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

func (d dtype) size() int {
	switch d {
	case float32Type, int32Type:
		return 4
	case float64Type, int64Type:
		return 8
	}
	return 1
}

func typeOf[T Number]() dtype {
	var zero T
	switch wide := unsafe.Sizeof(zero) == 8; {
	case kernel.IsFloat[T]() && wide:
		return float64Type
	case kernel.IsFloat[T]():
		return float32Type
	case wide:
		return int64Type
	}
	return int32Type
}

// raw is the memory of s. The wire carries it as it is.
func raw[T Number](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(s[0])))
}

// numbers is the reverse of raw. b must be aligned for T, as everything is that came
// from raw or from alignedBytes and was cut at a multiple of T's size.
func numbers[T Number](b []byte) []T {
	var zero T
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}

// alignedBytes makes a buffer that can hold any Number.
func alignedBytes(n int) []byte {
	return raw(make([]int64, (n+7)/8))[:n]
}

// reduce combines src into dst; finish marks the last of world contributions.
func reduce(d dtype, op Op, dst, src []byte, finish bool, world int) {
	switch d {
	case float32Type:
		reduceAs[float32](op, dst, src, finish, world)
	case float64Type:
		reduceAs[float64](op, dst, src, finish, world)
	case int32Type:
		reduceAs[int32](op, dst, src, finish, world)
	case int64Type:
		reduceAs[int64](op, dst, src, finish, world)
	}
}

func reduceAs[T Number](op Op, dst, src []byte, finish bool, world int) {
	d, s := numbers[T](dst), numbers[T](src)
	switch op {
	case Sum:
		kernel.Sum(d, s)
	case Average:
		kernel.Sum(d, s)
		if finish {
			kernel.Divide(d, world)
		}
	case Min:
		kernel.Min(d, s)
	case Max:
		kernel.Max(d, s)
	}
}
