package collective

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// path is the wires between this rank and one other. The sender dials, so there are
// separate ones for each direction; with several streams, message i takes wire i modulo
// their number.
type path struct {
	rank    int
	out     []wire        // set by the holder of the turn, under mu
	in      []wire        // guarded by mu; complete when arrived is closed
	taken   uint64        // streams that were admitted; guarded by mu
	arrived chan struct{} // closed when all of in are there
	gone    chan struct{} // closed when the rank has left, and they will never be

	goneOnce sync.Once

	sent, got uint32       // messages of the running operation
	waited    atomic.Int64 // nanoseconds for which operations slept until something came
}

// path returns the wires with a rank. The caller holds mu.
func (c *Communicator) path(rank int) *path {
	p := c.paths[rank]
	if p == nil {
		p = &path{rank: rank, in: make([]wire, c.opt.Streams), arrived: make(chan struct{}), gone: make(chan struct{})}
		c.paths[rank] = p
	}
	return p
}

// outgoing returns the path to a rank, with its wires; it dials if there are none.
func (c *Communicator) outgoing(ctx context.Context, rank int) (*path, error) {
	c.mu.Lock()
	p := c.path(rank)
	c.mu.Unlock()
	for len(p.out) < c.opt.Streams {
		c.watchNow()
		conn, err := c.open(ctx, rank, forWire, len(p.out))
		if err != nil {
			return nil, err
		}
		w, err := c.opt.Endpoint.wire(conn)
		if err != nil {
			_ = conn.Close()
			c.Abort(err) // the peer can not help it
			return nil, c.ended()
		}
		c.mu.Lock()
		p.out = append(p.out, w)
		dead := c.Failed() != nil // and not life, which ends after fail has shut what it found
		c.mu.Unlock()
		if dead {
			w.shut()
			return nil, c.ended()
		}
	}
	return p, nil
}

// incoming returns the path from a rank when the rank has dialled.
func (c *Communicator) incoming(rank int) (*path, error) {
	c.mu.Lock()
	p := c.path(rank)
	c.mu.Unlock()
	select {
	case <-p.arrived:
		return p, nil
	default:
	}
	c.watchNow()
	return p, c.arrival(rank, p.arrived, p.gone)
}

// attachWire takes over a connection that a rank has dialled. The caller holds mu.
func (c *Communicator) attachWire(conn net.Conn, rank, stream int) error {
	w, err := c.opt.Endpoint.wire(conn)
	if err != nil {
		return err
	}
	p := c.path(rank)
	p.in[stream] = w
	for _, w := range p.in {
		if w == nil {
			return nil
		}
	}
	close(p.arrived)
	return nil
}

// wires calls do for all of them.
func (c *Communicator) wires(do func(wire)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.paths {
		for _, w := range p.out {
			do(w)
		}
		for _, w := range p.in {
			if w != nil {
				do(w)
			}
		}
	}
}

// arrival waits until a peer has dialled, and asks now and then whether it lives.
func (c *Communicator) arrival(from int, arrived, gone <-chan struct{}) error {
	select {
	case <-arrived:
		return nil
	default:
	}
	for {
		select {
		case <-arrived:
			return nil
		case <-c.life.Done():
			return c.ended()
		case <-gone:
			return c.lost(from, ErrLeft)
		case <-time.After(c.opt.StallAfter / 2):
			if err := c.probe(c.life, from); err != nil {
				return err
			}
		}
	}
}

// open dials a rank and keeps asking whether it lives while it does not answer, as one
// may that has not been told of the generation yet.
func (c *Communicator) open(ctx context.Context, to int, why purpose, stream int) (net.Conn, error) {
	dialing, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		conn, err := c.dial(dialing, to, why, stream)
		done <- result{conn, err}
	}()
	for {
		select {
		case r := <-done:
			return r.conn, c.unlessOver(ctx, r.err)
		case <-time.After(c.opt.StallAfter / 2):
			if err := c.probe(ctx, to); err != nil {
				cancel()
				if r := <-done; r.conn != nil {
					_ = r.conn.Close()
				}
				return nil, c.unlessOver(ctx, err)
			}
		}
	}
}
