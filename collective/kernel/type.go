package kernel

import "fmt"

// Type is the type of the elements. The zero value is none.
type Type uint8

// The types.
const (
	Int8 Type = iota + 1
	Uint8
	Int16
	Int32
	Int64
	Float16
	BFloat16
	Float32
	Float64
	types
)

// shifts are the binary logarithms of the sizes: dividing by a size is a shift.
var shifts = [types]uint8{Int16: 1, Float16: 1, BFloat16: 1, Int32: 2, Float32: 2, Int64: 3, Float64: 3}

// shift is how far a number of elements is shifted to become one of bytes.
func (t Type) shift() uint8 {
	if t == 0 || t >= types {
		panic("kernel: no size: " + t.String())
	}
	return shifts[t]
}

// Size is the number of bytes of an element.
func (t Type) Size() int { return 1 << t.shift() }

// Float tells the floats from the integers.
func (t Type) Float() bool { return t >= Float16 && t <= Float64 }

func (t Type) String() string {
	if t == 0 || t >= types {
		return fmt.Sprintf("Type(%d)", uint8(t))
	}
	return [types]string{"", "int8", "uint8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"}[t]
}

// Op is a binary reduction operator.
type Op uint8

// The operations.
const (
	OpSum Op = iota
	OpProduct
	OpMin
	OpMax
	ops
)

func (o Op) String() string {
	if o >= ops {
		return fmt.Sprintf("Op(%d)", uint8(o))
	}
	return [ops]string{"sum", "product", "min", "max"}[o]
}
