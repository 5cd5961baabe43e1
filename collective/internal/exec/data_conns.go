package exec

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regroup-io/regroup/collective/internal/control"
)

// peerConns are the data connections between this rank and one other. The sender dials, so each
// direction has its own. With several streams, message i takes stream i modulo their number.
type peerConns struct {
	rank    int
	out     []Conn        // set by the running operation, under the table's mu
	in      []Conn        // guarded by the table's mu; complete when arrived is closed
	taken   uint64        // streams that were admitted: bits; guarded by the table's mu
	arrived chan struct{} // closed when all of in are there
	left    chan struct{} // closed when the rank has left, and they will never be

	leftOnce sync.Once

	sent, received uint32       // messages of the running operation
	waited         atomic.Int64 // nanoseconds that operations slept until something came
}

// connTable holds the data connections of a rank. They are made when a plan first needs them.
type connTable struct {
	session *control.Session
	op      *opContext
	cfg     *Config

	mu    sync.Mutex
	peers map[int]*peerConns
}

// peer returns the connections with a rank. The caller holds mu.
func (t *connTable) peer(rank int) *peerConns {
	p := t.peers[rank]
	if p == nil {
		p = &peerConns{
			rank: rank, in: make([]Conn, t.cfg.Streams), arrived: make(chan struct{}), left: make(chan struct{}),
		}
		t.peers[rank] = p
	}
	return p
}

func (t *connTable) get(rank int) *peerConns {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peer(rank)
}

// outgoing returns the connections to a rank, and dials those that are missing.
func (t *connTable) outgoing(ctx context.Context, rank int) (*peerConns, error) {
	p := t.get(rank)
	for len(p.out) < t.cfg.Streams {
		t.op.watch()
		raw, err := t.session.Open(ctx, rank, control.PurposeData, len(p.out))
		if err != nil {
			return nil, err
		}
		c, err := t.cfg.NewConn(raw)
		if err != nil {
			_ = raw.Close()
			t.session.Abort(err) // no peer is to blame
			return nil, t.session.Ended()
		}
		t.mu.Lock()
		p.out = append(p.out, c)
		failed := t.session.Failed() != nil // not Context, which ends after Interrupt
		t.mu.Unlock()
		if failed {
			c.Shutdown()
			return nil, t.session.Ended()
		}
	}
	return p, nil
}

// incoming returns the connections from a rank when the rank has dialed.
func (t *connTable) incoming(rank int) (*peerConns, error) {
	p := t.get(rank)
	select {
	case <-p.arrived:
		return p, nil
	default:
	}
	t.op.watch()
	return p, t.session.AwaitDial(rank, p.arrived, p.left)
}

func (t *connTable) admit(from, stream int) (refusal string) {
	if stream >= t.cfg.Streams {
		return fmt.Sprintf("stream %d of %d", stream, t.cfg.Streams)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.peer(from).taken |= 1 << stream
	return ""
}

func (t *connTable) adopt(from, stream int, raw net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.session.Usable() != nil {
		_ = raw.Close()
		return
	}
	c, err := t.cfg.NewConn(raw)
	if err != nil {
		_ = raw.Close()
		t.session.Go(func() { t.session.Abort(err) }) // Interrupt needs mu
		return
	}
	p := t.peer(from)
	p.in[stream] = c
	for _, c := range p.in {
		if c == nil {
			return
		}
	}
	close(p.arrived)
}

// peerLeft wakes an operation that waits until a rank dials.
func (t *connTable) peerLeft(rank int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peer(rank)
	if p.taken != 1<<t.cfg.Streams-1 {
		p.leftOnce.Do(func() { close(p.left) })
	}
}

func (t *connTable) each(do func(Conn)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.peers {
		for _, c := range p.out {
			do(c)
		}
		for _, c := range p.in {
			if c != nil {
				do(c)
			}
		}
	}
}

func (t *connTable) waitTime() (sum time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.peers {
		sum += time.Duration(p.waited.Load())
	}
	return sum
}
