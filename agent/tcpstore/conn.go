package tcpstore

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
)

// conn is one connection. Its goroutine reads requests, executes them one after the other, and
// writes the replies; only the answer of a wait is written by the
// connection whose request completes it.
type conn struct {
	*stream
	server *Server
	store  *store

	waiter  waiter
	waiting bool       // the last request was a wait that has to wait
	notices sync.Mutex // held while the answer of a wait is written, or withdrawn

	spoken bool  // has sent something
	older  bool  // dialect of PyTorch before 2.1
	taken  int64 // of the budget, by the request under way
}

// garbage is the error for bytes that no client of TCPStore sends, but port scanners do.
type garbage string

func (g garbage) Error() string { return string(g) }

func (s *Server) newConn(nc net.Conn) *conn {
	c := &conn{stream: newStream(nc), server: s, store: s.store}
	c.waiter.conn = c
	return c
}

// serve serves the connection until it ends.
func (c *conn) serve() error {
	defer c.endWait()
	defer c.giveBack()
	for {
		if err := c.serveOne(); err != nil {
			return err
		}
		c.giveBack()
	}
}

// serveOne serves one request.
func (c *conn) serveOne() error {
	b, err := c.byte()
	if err != nil {
		return err
	}
	if !c.spoken {
		c.spoken = true
		c.server.hasSpoken()
		return c.firstRequest(b)
	}
	c.endWait()
	return c.request(b)
}

// firstRequest tells the dialects apart.
func (c *conn) firstRequest(b byte) error {
	if c.older = b != byte(opValidate); c.older {
		return c.request(b)
	}
	n, err := c.uint32()
	if err != nil || n == magic {
		return err
	}
	c.older = true // the number is the low half of the length of a key, of a SET
	high, err := c.uint32()
	if err != nil {
		return err
	}
	key, err := c.keyOf(uint64(high)<<32 | uint64(n))
	if err != nil {
		return garbage(err.Error())
	}
	return c.set(key)
}

// endWait ends a wait whose answer is not written yet.
func (c *conn) endWait() {
	if !c.waiting {
		return
	}
	c.waiting = false
	if c.waiter.state.Load() == idle {
		return
	}
	c.store.cancel(&c.waiter)
	c.notices.Lock()
	defer c.notices.Unlock()
	c.waiter.state.Store(idle)
}

// notify writes the answer of a wait that is over, unless the wait was withdrawn meanwhile.
func (c *conn) notify() {
	c.notices.Lock()
	defer c.notices.Unlock()
	if c.waiter.state.Load() != fired {
		return
	}
	if err := c.writeNow(stopWaiting); err != nil {
		_ = c.Close() // a client that does not read: its goroutine ends with an error
	}
	c.waiter.state.Store(idle)
}

func (c *conn) take(n int64) error {
	if err := c.store.budget.take(n); err != nil {
		return err
	}
	c.taken += n
	return nil
}

// giveBack gives back what the request took from the budget while it was received.
func (c *conn) giveBack() {
	c.store.budget.give(c.taken)
	c.taken = 0
}

// isDisconnect tells whether an error only means that the client has closed the connection.
func isDisconnect(err error) bool {
	var op *net.OpError
	var errno syscall.Errno
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &op) || errors.As(err, &errno)
}
