package collective

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// frameKind is the first byte of everything that is sent after the handshake.
type frameKind uint8

const (
	frameData   frameKind = iota + 1 // a message of a plan, forward only
	frameBeat                        // the process runs
	frameBye                         // the sender has ended all its operations and leaves
	frameByeAck                      // everything up to the goodbye was read
	frameAbort                       // the communicator failed; the payload says why
	frameDirect                      // the start of a direct message
)

// method is the operation that a frame belongs to.
type method uint8

const (
	allreduce method = iota + 1
	broadcast
	allgather
	barrier
	direct
)

var methodNames = [...]string{"nothing", "Allreduce", "Broadcast", "Allgather", "Barrier", "Send"}

// call is what all ranks must agree on. Every data frame carries it whole rather
// than as a hash, so that an error can say what the other side was doing.
type call struct {
	method method
	dtype  dtype
	op     Op
	root   uint32
	count  uint64 // elements of the whole operation
	seq    uint64 // number of the operation in this communicator
}

func (c call) String() string {
	name := methodNames[0]
	if int(c.method) < len(methodNames) {
		name = methodNames[c.method]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %d %v", name, c.count, c.dtype)
	switch c.method {
	case allreduce:
		fmt.Fprintf(&b, " with %v", c.op)
	case broadcast:
		fmt.Fprintf(&b, " from rank %d", c.root)
	}
	fmt.Fprintf(&b, " (operation %d)", c.seq)
	return b.String()
}

// head precedes every payload: 32 bytes, little endian.
//
//	0 kind | 1 method | 2 dtype | 3 op | 4 length u32 | 8 seq u64 | 16 count u64 | 24 root u32 | 28 index u32
type head struct {
	kind   frameKind
	call   call
	length uint32 // bytes of payload that follow; a direct message announces its size in call.count
	index  uint32 // number of the message in the plan of this operation
}

const (
	headLen    = 32
	maxControl = 1024 // bytes of payload of a control frame
)

var errFrame = errors.New("malformed frame")

func (h head) put(b []byte) {
	b[0], b[1], b[2], b[3] = byte(h.kind), byte(h.call.method), byte(h.call.dtype), byte(h.call.op)
	le := binary.LittleEndian
	le.PutUint32(b[4:], h.length)
	le.PutUint64(b[8:], h.call.seq)
	le.PutUint64(b[16:], h.call.count)
	le.PutUint32(b[24:], h.call.root)
	le.PutUint32(b[28:], h.index)
}

// parseHead decodes b, which has headLen bytes. It accepts nothing that put cannot
// have made with values in range.
func parseHead(b []byte) (head, error) {
	le := binary.LittleEndian
	h := head{
		kind:   frameKind(b[0]),
		length: le.Uint32(b[4:]),
		index:  le.Uint32(b[28:]),
		call: call{
			method: method(b[1]), dtype: dtype(b[2]), op: Op(b[3]),
			seq: le.Uint64(b[8:]), count: le.Uint64(b[16:]), root: le.Uint32(b[24:]),
		},
	}
	limit := uint32(0)
	switch h.kind {
	case frameData:
		limit = maxChunk
	case frameAbort:
		limit = maxControl
	case frameBeat, frameBye, frameByeAck, frameDirect:
	default:
		return head{}, fmt.Errorf("%w: kind %d", errFrame, b[0])
	}
	if h.length > limit {
		return head{}, fmt.Errorf("%w: %d bytes of payload in a frame of kind %d", errFrame, h.length, b[0])
	}
	return h, nil
}
