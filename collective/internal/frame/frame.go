// Package frame defines the messages between ranks: the header of every frame, and the descriptor
// of the operation that a frame belongs to.
package frame

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/regroup-io/regroup/collective/kernel"
)

// Kind is the first byte of everything that is sent after the handshake.
type Kind uint8

// The kinds.
const (
	Data       Kind = iota + 1 // a message of a plan; only on data connections
	Heartbeat                  // the process runs: its newest operation, and a table of wait times or nothing
	Goodbye                    // the sender has finished all its operations and leaves
	GoodbyeAck                 // everything up to the goodbye was read
	Abort                      // the communicator failed; the payload is the encoded failure
	Direct                     // begins a point-to-point message; only on connections for these
)

// Header precedes every payload: 32 bytes, little endian.
//
//	0 kind | 1 method | 2 type | 3 reduce | 4 length u32 | 8 seq u64 | 16 count u48 | 22 wire | 23 origin | 24 root u32 | 28 index u32
//
// The byte at 22 is 1 + the type on the wire, or 0 if that is the type of the elements.
type Header struct {
	Kind Kind
	Op   Descriptor
	// Length is the number of bytes of payload that follow. A point-to-point message has its size
	// in Op.Count instead.
	Length uint32
	Index  uint32 // number of the message among those of this operation to this peer
}

// Limits.
const (
	HeaderLen  = 32
	MaxControl = 1024     // bytes of payload of a control frame
	MaxMessage = 64 << 20 // bytes of payload of a data frame
	maxCount   = 1 << 48  // elements of one operation
)

// ErrMalformed is the error of bytes that are no frame.
var ErrMalformed = errors.New("malformed frame")

// Put encodes h into b, which has HeaderLen bytes.
func (h Header) Put(b []byte) {
	_ = b[HeaderLen-1]
	le := binary.LittleEndian
	le.PutUint64(b, uint64(h.Kind)|uint64(h.Op.Method)<<8|uint64(h.Op.Type)<<16|uint64(h.Op.Reduce)<<24|uint64(h.Length)<<32)
	le.PutUint64(b[8:], h.Op.Seq)
	count := h.Op.Count | uint64(h.Op.Origin)<<56
	if h.Op.Narrow {
		count |= uint64(1+h.Op.Wire) << 48
	}
	le.PutUint64(b[16:], count)
	le.PutUint64(b[24:], uint64(h.Op.Root)|uint64(h.Index)<<32)
}

// Parse decodes b, which has HeaderLen bytes. It refuses kinds, lengths, counts and wire types out
// of range; the method, the type and the reduction are for the reader to check.
func Parse(b []byte) (Header, error) {
	_ = b[HeaderLen-1]
	le := binary.LittleEndian
	count := le.Uint64(b[16:])
	h := Header{
		Kind:   Kind(b[0]),
		Length: le.Uint32(b[4:]),
		Index:  le.Uint32(b[28:]),
		Op: Descriptor{
			Method: Method(b[1]), Type: kernel.Type(b[2]), Reduce: ReduceOp(b[3]),
			Seq: le.Uint64(b[8:]), Count: count % maxCount, Root: le.Uint32(b[24:]),
			Origin: b[23],
		},
	}
	if wire := b[22]; wire > 0 {
		h.Op.Narrow, h.Op.Wire = true, kernel.Type(wire-1)
	}
	limit := uint32(0)
	switch h.Kind {
	case Data:
		limit = MaxMessage
	case Abort, Heartbeat:
		limit = MaxControl
	case Goodbye, GoodbyeAck, Direct:
	default:
		return Header{}, fmt.Errorf("%w: kind %d", ErrMalformed, b[0])
	}
	if h.Length > limit {
		return Header{}, fmt.Errorf("%w: %d bytes of payload in a frame of kind %d", ErrMalformed, h.Length, b[0])
	}
	return h, nil
}
