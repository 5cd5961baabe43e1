package collective

import (
	"net"
	"sync"
	"time"
)

// wire carries the messages of collective operations in one direction, to or from one
// peer. It belongs to the operation that has the turn.
type wire interface {
	// write sends head and body whole. read waits for something and returns how much.
	write(head, body []byte) error
	read(p []byte) (int, error)
	// shut ends pending and later calls, on both sides. It may be called at any time.
	shut()
	// close frees what the wire holds. Nobody may be using it.
	close()
}

// polled is a wire that can also be used without waiting, so that one thread can send
// and receive at the same time.
type polled interface {
	wire
	// tryWrite and tryRead move what can be moved now of head and body, in this order;
	// 0 = nothing.
	tryWrite(head, body []byte) (int, error)
	tryRead(head, body []byte) (int, error)
	descriptor() int32
}

// connWire is a wire over any connection.
type connWire struct {
	conn net.Conn
	buf  []byte // a head with a short body
	vec  [2][]byte
	bufs net.Buffers
	once sync.Once
}

// inline is the payload up to which a message is copied behind its header and
// written at once; beyond it the copy costs more than a second vector.
const inline = 8 << 10

func (w *connWire) write(head, body []byte) error {
	if len(body) <= inline {
		w.buf = append(append(w.buf[:0], head...), body...)
		_, err := w.conn.Write(w.buf)
		return err
	}
	w.vec = [2][]byte{head, body}
	w.bufs = w.vec[:]
	_, err := w.bufs.WriteTo(w.conn)
	w.vec[1] = nil // the caller's memory must not stay reachable from here
	return err
}

func (w *connWire) read(p []byte) (int, error) { return w.conn.Read(p) }

// shut leaves the closing to close: a deadline wakes whoever is blocked, and the peer is
// told by the control links.
func (w *connWire) shut() { _ = w.conn.SetDeadline(time.Unix(1, 0)) }

func (w *connWire) close() { w.once.Do(func() { _ = w.conn.Close() }) }
