package frame

import (
	"fmt"
	"strings"

	"github.com/regroup-io/regroup/collective/kernel"
)

// Method is an operation of a communicator.
type Method uint8

// The methods.
const (
	Allreduce Method = iota + 1
	ReduceScatter
	Allgather
	Broadcast
	Reduce
	Alltoall
	Barrier
	Send
)

// Reduces reports whether the method combines elements.
func (m Method) Reduces() bool { return m == Allreduce || m == ReduceScatter || m == Reduce }

var methodNames = [...]string{
	"nothing", "Allreduce", "ReduceScatter", "Allgather", "Broadcast", "Reduce", "Alltoall", "Barrier", "Send",
}

func (m Method) String() string {
	if int(m) < len(methodNames) {
		return methodNames[m]
	}
	return methodNames[0]
}

// ReduceOp is how a reduction combines the ranks' elements. Package kernel states the rules for
// NaN, signed zeroes and overflow.
type ReduceOp uint8

// The reductions.
const (
	Sum ReduceOp = iota
	// Average is the sum, then once per element: floats times 1/World, integers divided by World
	// and truncated toward zero.
	Average
	Product
	Min
	Max
)

var reduceOpNames = [...]string{"sum", "average", "product", "min", "max"}

func (o ReduceOp) String() string {
	if int(o) < len(reduceOpNames) {
		return reduceOpNames[o]
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// Kernel is the part of the reduction that combines two elements.
func (o ReduceOp) Kernel() kernel.Op {
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

// Descriptor describes one operation: what all ranks must agree on. Every message carries it whole
// rather than as a hash, so that an error can say what the other rank was doing.
type Descriptor struct {
	Method Method
	Type   kernel.Type
	Reduce ReduceOp
	Wire   kernel.Type // type of the elements on the wire, if Narrow is set
	Narrow bool        // the wire carries a shorter type
	Root   uint32
	Origin uint8 // see collective.Origin
	// Count is the number of elements of the whole operation. For an all-to-all it is 0, and in its
	// messages the number of elements of the block.
	Count uint64
	Seq   uint64 // sequence number of the operation in its communicator
}

func (d Descriptor) String() string {
	var b strings.Builder
	b.WriteString(d.Method.String())
	switch {
	case d.Method == Alltoall && d.Count == 0: // blocks of different sizes
		fmt.Fprintf(&b, " of %v", d.Type)
	case d.Method != Barrier:
		fmt.Fprintf(&b, " of %d %v", d.Count, d.Type)
	}
	switch d.Method {
	case Broadcast, Reduce:
		fmt.Fprintf(&b, ", root %d", d.Root)
	}
	if d.Method.Reduces() {
		fmt.Fprintf(&b, " with %v", d.Reduce)
	}
	if d.Narrow {
		fmt.Fprintf(&b, " as %v", d.Wire)
	}
	fmt.Fprintf(&b, " (operation %d", d.Seq)
	if d.Origin != 0 {
		fmt.Fprintf(&b, ", origin %d", d.Origin)
	}
	b.WriteByte(')')
	return b.String()
}
