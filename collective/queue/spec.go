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
	// Custom is an operation of the caller. See Queue.Do.
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

// Spec is what must be equal on all ranks that submit an operation under one name.
type Spec struct {
	Method Method
	Type   kernel.Type   // of the elements
	Op     collective.Op // of Allreduce and ReduceScatter
	Wire   kernel.Type   // of Allreduce: type of the elements on the wire; zero = Type
	Root   int           // of Broadcast
	// Count is the number of elements; for Allgather and Alltoall those of a row, because the
	// number of rows may differ between ranks.
	Count int
	// Detail is whatever else the caller wants to be equal: shape, device, scale factors.
	Detail string
}

// String describes the operation. Two specs are equal if their strings are.
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

// hash is a hash of a text, the same on all ranks. Its negative is representable, and it is none of
// the hashes with a special meaning in a vote.
func hash(text string) int64 {
	sum := sha256.Sum256([]byte(text))
	h := int64(binary.LittleEndian.Uint64(sum[:]))
	if h == noOperation || h == anyOperation || h == math.MinInt64 {
		return 1
	}
	return h
}

// identityElement is the identity element of a reduction: what a rank that has joined contributes.
// An average divides by all ranks, including joined ones.
func identityElement(t kernel.Type, op collective.Op) []byte {
	float, integer := 0.0, int64(0) // of a sum
	bits := 8*t.Size() - 1
	least, most := int64(-1)<<bits, int64(1)<<bits-1
	if t == kernel.Uint8 {
		least, most = 0, math.MaxUint8
	}
	switch op {
	case collective.Product:
		float, integer = 1, 1
	case collective.Min:
		float, integer = math.Inf(1), most
	case collective.Max:
		float, integer = math.Inf(-1), least
	}
	single := collective.Of([]float32{float32(float)}).Data
	switch t {
	case kernel.Float16, kernel.BFloat16:
		half := make([]byte, t.Size())
		kernel.Narrow(t, half, single)
		return half
	case kernel.Float32:
		return single
	case kernel.Float64:
		return collective.Of([]float64{float}).Data
	case kernel.Int8, kernel.Uint8:
		return []byte{byte(integer)}
	case kernel.Int16:
		return collective.Of([]int16{int16(integer)}).Data
	case kernel.Int32:
		return collective.Of([]int32{int32(integer)}).Data
	}
	return collective.Of([]int64{integer}).Data
}

// Phase is a phase of an operation.
type Phase uint8

// The phases.
const (
	Submitted  Phase = iota // by this rank
	Began                   // all ranks have submitted it, and it begins to run
	Ended                   // with or without an error
	CycleBegan              // of no operation: the ranks begin to compare what they have
)

// Event is a phase of an operation that has begun.
type Event struct {
	Phase  Phase
	Name   string
	Method Method
	Packed int // with Began: how many operations are fused
}
