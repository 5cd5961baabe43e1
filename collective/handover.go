package collective

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/regroup-io/regroup/collective/shm"
)

// A large message to a rank that can read this one's memory is not sent: the head, whose
// index is then handedOver, is followed by its address (u64), and the receiver answers
// with one byte when it has read it.
const (
	handedOver   = 1
	handOverFrom = 256 << 10 // bytes, from which the answer is worth waiting for
)

// readsMemory tells whether a rank can read this one's memory.
func (c *Communicator) readsMemory(rank int) bool {
	return c.local != nil && c.local.Readable() && c.isLocal(rank)
}

// handOver has a rank read p, and returns when it has.
func (c *Communicator) handOver(ctx context.Context, to int, l *lane, p []byte) error {
	address := binary.LittleEndian.AppendUint64(nil, shm.Address(p))
	if err := c.stream(ctx, to, address, l.out.Write, l.out.SetWriteDeadline); err != nil {
		return err
	}
	var done [1]byte
	return c.stream(ctx, to, done[:], l.out.Read, l.out.SetReadDeadline)
}

// takeOver reads what a rank has handed over into p.
func (c *Communicator) takeOver(ctx context.Context, from int, l *lane, p []byte) error {
	var address [8]byte
	if err := c.stream(ctx, from, address[:], l.in.Read, l.in.SetReadDeadline); err != nil {
		return err
	}
	if !c.readsMemory(from) {
		return fmt.Errorf("%w: rank %d hands over memory that can not be read", errFrame, from)
	}
	if err := c.local.Read(from-c.leader(), binary.LittleEndian.Uint64(address[:]), p); err != nil {
		return err
	}
	return c.stream(ctx, from, []byte{1}, l.in.Write, l.in.SetWriteDeadline)
}
