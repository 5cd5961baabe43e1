package exec

import (
	"net"
	"sync"
	"time"
)

// Conn carries the messages of collective operations in one direction, to or from one peer. Only
// the running operation uses it.
type Conn interface {
	// Write sends header and body whole. Read waits for data and returns how much it read.
	Write(header, body []byte) error
	Read(p []byte) (int, error)
	// Shutdown ends pending and later calls, on both sides. It may be called at any time.
	Shutdown()
	// Close releases resources. Nobody may be using the Conn.
	Close()
}

// PollConn is a Conn that can also be used without blocking, so that one thread can send and
// receive at the same time.
type PollConn interface {
	Conn
	// TryWrite and TryRead transfer what can be transferred now of header and body, in this order;
	// 0 = nothing.
	TryWrite(header, body []byte) (int, error)
	TryRead(header, body []byte) (int, error)
	Descriptor() int32
}

// streamConn is a Conn over any connection.
type streamConn struct {
	conn net.Conn
	buf  []byte // a header with a short body
	vec  [2][]byte
	bufs net.Buffers
	once sync.Once
}

// coalesceBytes is the largest body that is copied behind its header to be written at once. Beyond
// that the copy costs more than a second vector.
const coalesceBytes = 8 << 10

func (c *streamConn) Write(header, body []byte) error {
	if len(body) <= coalesceBytes {
		c.buf = append(append(c.buf[:0], header...), body...)
		_, err := c.conn.Write(c.buf)
		return err
	}
	c.vec = [2][]byte{header, body}
	c.bufs = c.vec[:]
	_, err := c.bufs.WriteTo(c.conn)
	c.vec[1] = nil // the caller's memory must not stay reachable from here
	return err
}

func (c *streamConn) Read(p []byte) (int, error) { return c.conn.Read(p) }

// Shutdown sets a deadline, which wakes blocked calls. Closing is left to Close, and the peer is
// told by the control connections.
func (c *streamConn) Shutdown() { _ = c.conn.SetDeadline(time.Unix(1, 0)) }

func (c *streamConn) Close() { c.once.Do(func() { _ = c.conn.Close() }) }
