package collective

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/regroup-io/regroup/collective/kernel"
)

// frameKind is the first byte of everything that is sent after the handshake.
type frameKind uint8

const (
	frameData   frameKind = iota + 1 // a message of a plan; only on wires
	frameBeat                        // the process runs
	frameBye                         // the sender has ended all its operations and leaves
	frameByeAck                      // everything up to the goodbye was read
	frameAbort                       // the communicator failed; the payload says why
	frameDirect                      // the start of a direct message; only on lanes
)

// method is the operation that a frame belongs to.
type method uint8

const (
	allreduce method = iota + 1
	reduceScatter
	allgather
	broadcast
	reduce
	alltoall
	barrier
	direct
)

// reduces tells whether it combines elements.
func (m method) reduces() bool { return m == allreduce || m == reduceScatter || m == reduce }

var methodNames = [...]string{
	"nothing", "Allreduce", "ReduceScatter", "Allgather", "Broadcast", "Reduce", "Alltoall", "Barrier", "Send",
}

// call is what all ranks must agree on. Every message carries it whole rather than as
// a hash, so that an error can say what the other side was doing.
type call struct {
	method method
	dtype  kernel.Type
	op     Op
	wire   kernel.Type // of the elements on the wire, if narrow is set
	narrow bool        // the wire carries a shorter type
	root   uint32
	count  uint64 // elements of the whole operation; of an all-to-all 0, and in its messages those of the block
	seq    uint64 // number of the operation in this communicator
}

func (c call) String() string {
	name := methodNames[0]
	if int(c.method) < len(methodNames) {
		name = methodNames[c.method]
	}
	var b strings.Builder
	b.WriteString(name)
	switch {
	case c.method == alltoall && c.count == 0: // of blocks that differ
		fmt.Fprintf(&b, " of %v", c.dtype)
	case c.method != barrier:
		fmt.Fprintf(&b, " of %d %v", c.count, c.dtype)
	}
	switch c.method {
	case broadcast, reduce:
		fmt.Fprintf(&b, ", root %d", c.root)
	}
	if c.method.reduces() {
		fmt.Fprintf(&b, " with %v", c.op)
	}
	if c.narrow {
		fmt.Fprintf(&b, " as %v", c.wire)
	}
	fmt.Fprintf(&b, " (operation %d)", c.seq)
	return b.String()
}

// head precedes every payload: 32 bytes, little endian.
//
//	0 kind | 1 method | 2 dtype | 3 op | 4 length u32 | 8 seq u64 | 16 count u48 | 22 wire | 23 0 | 24 root u32 | 28 index u32
//
// The wire is 1 + its type, or 0 if it is that of the elements.
type head struct {
	kind   frameKind
	call   call
	length uint32 // bytes of payload that follow; a direct message announces its size in call.count
	index  uint32 // number of the message among those of this operation to this peer
}

const (
	headLen    = 32
	maxControl = 1024    // bytes of payload of a control frame
	maxCount   = 1 << 48 // elements of one operation
)

var errFrame = errors.New("malformed frame")

func (h head) put(b []byte) {
	_ = b[headLen-1]
	le := binary.LittleEndian
	le.PutUint64(b, uint64(h.kind)|uint64(h.call.method)<<8|uint64(h.call.dtype)<<16|uint64(h.call.op)<<24|uint64(h.length)<<32)
	le.PutUint64(b[8:], h.call.seq)
	count := h.call.count
	if h.call.narrow {
		count |= uint64(1+h.call.wire) << 48
	}
	le.PutUint64(b[16:], count)
	le.PutUint64(b[24:], uint64(h.call.root)|uint64(h.index)<<32)
}

// parseHead decodes b, which has headLen bytes. It accepts nothing that put cannot
// have made with values in range.
func parseHead(b []byte) (head, error) {
	_ = b[headLen-1]
	le := binary.LittleEndian
	count := le.Uint64(b[16:])
	h := head{
		kind:   frameKind(b[0]),
		length: le.Uint32(b[4:]),
		index:  le.Uint32(b[28:]),
		call: call{
			method: method(b[1]), dtype: kernel.Type(b[2]), op: Op(b[3]),
			seq: le.Uint64(b[8:]), count: count % maxCount, root: le.Uint32(b[24:]),
		},
	}
	if wire := count >> 48; wire > 0 {
		if wire > 1<<8 {
			return head{}, fmt.Errorf("%w: wire type %d", errFrame, wire)
		}
		h.call.narrow, h.call.wire = true, kernel.Type(wire-1)
	}
	limit := uint32(0)
	switch h.kind {
	case frameData:
		limit = maxChunk
	case frameAbort, frameBeat:
		limit = maxControl
	case frameBye, frameByeAck, frameDirect:
	default:
		return head{}, fmt.Errorf("%w: kind %d", errFrame, b[0])
	}
	if h.length > limit {
		return head{}, fmt.Errorf("%w: %d bytes of payload in a frame of kind %d", errFrame, h.length, b[0])
	}
	return h, nil
}
