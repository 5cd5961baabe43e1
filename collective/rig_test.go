package collective

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/regroup-io/regroup/collective/internal/exec"
	"github.com/regroup-io/regroup/collective/internal/frame"
)

// rig is a transport whose rank can be killed as SIGKILL would: at a write, or at will. After
// that all its connections are broken and its listener is gone.
type rig struct {
	Transport
	// tap, if set, makes data connections of sockets, so that the rig sees their system calls too.
	// Otherwise they are any connections.
	tap func(*rig, net.Conn) (exec.Conn, error)

	mu        sync.Mutex
	conns     map[net.Conn]struct{}
	dataConns []exec.Conn
	count     int // of writes
	at        int // the write to die at, counted from 1; 0 for never
	dials     int
	// when, if set, is asked at each write: write number n of connection number dial that this
	// rank has dialled.
	when func(dial, n int) bool
	dead bool
}

var errRig = errors.New("killed by the test")

func newRig(t Transport, at int) *rig {
	return &rig{Transport: t, at: at, conns: map[net.Conn]struct{}{}}
}

// endpoint makes the one of the rank.
func (r *rig) endpoint() *Endpoint {
	e := NewEndpoint(r)
	if r.tap != nil {
		e.newConn = func(c net.Conn) (exec.Conn, error) { return r.tap(r, c) }
	}
	return e
}

func (r *rig) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead = true
	_ = r.Transport.Close()
	for c := range r.conns {
		_ = c.Close()
	}
	for _, w := range r.dataConns {
		w.Shutdown()
	}
	r.conns, r.dataConns = nil, nil
}

// isDead reports whether the rank is dead: it has nothing more to say, though not all that breaks
// breaks in the same moment.
func (r *rig) isDead() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dead
}

func (r *rig) writes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

func (r *rig) hold(c net.Conn, dial int, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead {
		_ = c.Close()
		return nil, errRig
	}
	r.conns[c] = struct{}{}
	return &rigConn{Conn: c, rig: r, dial: dial}, nil
}

func (r *rig) Dial(ctx context.Context, addr string) (net.Conn, error) {
	r.mu.Lock()
	r.dials++
	dial := r.dials
	r.mu.Unlock()
	c, err := r.Transport.Dial(ctx, addr)
	return r.hold(c, dial, err)
}

func (r *rig) Accept(ctx context.Context) (net.Conn, error) {
	c, err := r.Transport.Accept(ctx)
	return r.hold(c, 0, err)
}

// dies counts a write and reports whether it is the one to die at. From then on the rank writes
// nothing else: the write may be a heartbeat, beside which operations continue until the
// connections break.
func (r *rig) dies(dial, n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	now := r.count == r.at || r.when != nil && r.when(dial, n)
	r.dead = r.dead || now
	return now
}

// part is how much of a message of n bytes gets through when the rank dies at it: nothing, a
// part of its head, or half of it, which are the hardest places to die.
func (r *rig) part(n int) int {
	return [...]int{0, min(n, frame.HeaderLen) / 2, n / 2}[r.at%3]
}

type rigConn struct {
	net.Conn
	rig  *rig
	dial int
	n    int // writes; a connection has one writer at a time
}

func (c *rigConn) Write(p []byte) (int, error) {
	if c.rig.isDead() {
		return 0, errRig // the dead do not report losses
	}
	// Goodbyes and their answers come when no other rank needs this one, and heartbeats come by the
	// clock: at no fixed position among the other writes.
	control := len(p) >= frame.HeaderLen && (p[0] == byte(frame.Goodbye) || p[0] == byte(frame.GoodbyeAck) || p[0] == byte(frame.Heartbeat))
	if !control {
		c.n++
		if c.rig.dies(c.dial, c.n) {
			n, _ := c.Conn.Write(p[:c.rig.part(len(p))])
			c.rig.kill()
			return n, errRig
		}
	}
	return c.Conn.Write(p)
}
