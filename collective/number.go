package collective

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/regroup-io/regroup/collective/kernel"
)

// Number is what can be reduced.
type Number interface {
	~float32 | ~float64 | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | Float16 | BFloat16
}

// Float16 is the bits of an IEEE 754 half precision number. It is reduced in float32 and
// rounded once per operation.
type Float16 uint16

// BFloat16 is the upper half of the bits of a float32, reduced as a Float16 is.
type BFloat16 uint16

// Op is how a reduction combines the ranks' elements. Package kernel states the
// rules for NaN, signed zeroes and overflow.
type Op uint8

// The reductions.
const (
	Sum Op = iota
	// Average is the sum, then once per element: floats times 1/World, integers
	// divided by World and truncated toward zero.
	Average
	Product
	Min
	Max
)

var opNames = [...]string{"sum", "average", "product", "min", "max"}

func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// kernel is the part of the reduction that combines two elements.
func (o Op) kernel() kernel.Op {
	switch o {
	case Product:
		return kernel.OpProduct
	case Min:
		return kernel.OpMin
	case Max:
		return kernel.OpMax
	}
	return kernel.OpSum
}

// Tensor is memory with a type: what operations work on. Its memory needs no particular
// alignment, and is used in place.
type Tensor struct {
	Type kernel.Type
	Data []byte
}

// Of is the tensor over the memory of s.
func Of[T Number](s []T) Tensor { return Tensor{typeOf[T](), raw(s)} }

// OfBytes is the tensor over p: it can be moved, but only reduced as 8-bit integers.
func OfBytes(p []byte) Tensor { return Tensor{kernel.Uint8, p} }

// Len is the number of elements.
func (t Tensor) Len() int { return len(t.Data) / t.Type.Size() }

func (t Tensor) validate(name string) error {
	switch {
	case t.Type < kernel.Int8 || t.Type > kernel.Float64:
		return invalid("%s has no known type: %v", name, t.Type)
	case len(t.Data)%t.Type.Size() != 0:
		return invalid("%s has %d bytes, which is no multiple of a %v", name, len(t.Data), t.Type)
	}
	return nil
}

func typeOf[T Number]() kernel.Type {
	var zero T
	switch any(zero).(type) {
	case Float16:
		return kernel.Float16
	case BFloat16:
		return kernel.BFloat16
	}
	switch reflect.TypeFor[T]().Kind() {
	case reflect.Float32:
		return kernel.Float32
	case reflect.Float64:
		return kernel.Float64
	case reflect.Int8:
		return kernel.Int8
	case reflect.Int16:
		return kernel.Int16
	case reflect.Int32:
		return kernel.Int32
	case reflect.Uint8:
		return kernel.Uint8
	}
	return kernel.Int64
}

// raw is the memory of s. The wire carries it as it is.
func raw[T Number](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(s[0])))
}
