package queue

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
)

// Method is what an operation does.
type Method uint8

// The methods.
const (
	// Custom is an operation of the caller's own. See Queue.Do.
	Custom Method = iota
	Allreduce
	Allgather
	Broadcast
	Alltoall
	ReduceScatter
	Barrier
)

var methodNames = [...]string{"custom", "allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "barrier"}

func (m Method) String() string {
	if int(m) < len(methodNames) {
		return methodNames[m]
	}
	return fmt.Sprintf("Method(%d)", uint8(m))
}

// Spec is what must be the same on all ranks that submit an operation under one name.
type Spec struct {
	Method Method
	Type   kernel.Type   // of the elements
	Op     collective.Op // of Allreduce and ReduceScatter
	Wire   kernel.Type   // of Allreduce: the elements on the wire; zero = Type
	Root   int           // of Broadcast
	// Count is the number of elements; of Allgather and Alltoall that of a row, because the
	// number of rows may differ from rank to rank.
	Count int
	// Detail is whatever else the caller wants to be the same: the shape, the device, scale
	// factors.
	Detail string
}

// String describes the operation. Two specs are the same if their strings are.
func (s Spec) String() string {
	switch s.Method {
	case Custom:
		return s.Detail
	case Barrier:
		return s.Method.String()
	}
	text := fmt.Sprintf("%v of %d %v", s.Method, s.Count, s.Type)
	switch s.Method {
	case Allgather, Alltoall:
		text = fmt.Sprintf("%v of rows of %d %v", s.Method, s.Count, s.Type)
	case Broadcast:
		text += fmt.Sprintf(" from rank %d", s.Root)
	case Allreduce, ReduceScatter:
		text += fmt.Sprintf(", %v", s.Op)
	}
	if s.Wire != 0 {
		text += fmt.Sprintf(", sent as %v", s.Wire)
	}
	if s.Detail != "" {
		text += ", " + s.Detail
	}
	return text
}

// hash is a number for a text, the same on all ranks. Its negative is a number too, and it
// is none of the numbers with a meaning of their own in a vote.
func hash(text string) int64 {
	sum := sha256.Sum256([]byte(text))
	h := int64(binary.LittleEndian.Uint64(sum[:]))
	if h == nothing || h == anything || h == math.MinInt64 {
		return 1
	}
	return h
}

// neutral is the element that changes nothing where it is combined with others: what a rank
// that has joined contributes. An average divides by all ranks, joined ones too.
func neutral(t kernel.Type, op collective.Op) []byte {
	element := make([]byte, t.Size())
	put := func(float32s, float64s float64, integer int64) {
		switch t {
		case kernel.Float32:
			binary.NativeEndian.PutUint32(element, math.Float32bits(float32(float32s)))
		case kernel.Float64:
			binary.NativeEndian.PutUint64(element, math.Float64bits(float64s))
		case kernel.BFloat16:
			binary.NativeEndian.PutUint16(element, uint16(math.Float32bits(float32(float32s))>>16))
		case kernel.Float16:
			binary.NativeEndian.PutUint16(element, map[float64]uint16{1: 0x3c00, math.Inf(1): 0x7c00, math.Inf(-1): 0xfc00}[float32s])
		case kernel.Int8, kernel.Uint8:
			element[0] = byte(integer)
		case kernel.Int16:
			binary.NativeEndian.PutUint16(element, uint16(integer))
		case kernel.Int32:
			binary.NativeEndian.PutUint32(element, uint32(integer))
		case kernel.Int64:
			binary.NativeEndian.PutUint64(element, uint64(integer))
		}
	}
	bits := 8*t.Size() - 1
	least, most := int64(-1)<<bits, int64(1)<<bits-1
	if t == kernel.Uint8 {
		least, most = 0, math.MaxUint8
	}
	switch op {
	case collective.Product:
		put(1, 1, 1)
	case collective.Min:
		put(math.Inf(1), math.Inf(1), most)
	case collective.Max:
		put(math.Inf(-1), math.Inf(-1), least)
	}
	return element // sums begin with zero
}
