package inproc

import (
	"io"
	"net"
	"sync/atomic"
	"time"
)

// conn is one end of a connection.
type conn struct {
	in, out *pipe
	owner   *Listener
	remote  string
	closed  atomic.Bool
}

func pair(a, b *Listener) (*conn, *conn) {
	ab, ba := newPipe(), newPipe()
	return &conn{in: ba, out: ab, owner: a, remote: b.name}, &conn{in: ab, out: ba, owner: b, remote: a.name}
}

func (c *conn) Read(b []byte) (int, error) {
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	n, err := c.in.read(b)
	if err != nil && c.closed.Load() {
		err = net.ErrClosed
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	return c.out.write(b)
}

// Close lets the peer read what was written, then end of file.
func (c *conn) Close() error {
	if !c.closed.Swap(true) {
		c.owner.untrack(c)
		c.out.close(io.EOF, false)
		c.in.close(io.ErrClosedPipe, true)
	}
	return nil
}

func (c *conn) reset() {
	c.owner.untrack(c)
	c.out.close(ErrReset, true)
	c.in.close(ErrReset, true)
}

func (c *conn) LocalAddr() net.Addr  { return &net.UnixAddr{Net: "inproc", Name: c.owner.name} }
func (c *conn) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "inproc", Name: c.remote} }

func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.reads, t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.writes, t)
	return nil
}
