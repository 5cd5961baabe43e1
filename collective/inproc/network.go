// Package inproc carries a collective between goroutines of one process: the same contract as TCP,
// without sockets. It is for programs that train with several ranks in one process, tests, and
// simulation.
//
// Networks share nothing with each other.
package inproc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
)

// ErrRefused is the reason for a failed Dial: no listener has that name.
var ErrRefused = errors.New("inproc: connection refused")

// ErrReset is what both ends of a killed connection see.
var ErrReset = errors.New("inproc: connection reset")

// Network connects listeners by name.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*Listener
}

// NewNetwork makes an empty network.
func NewNetwork() *Network { return &Network{listeners: map[string]*Listener{}} }

// Listen adds a listener. The name is free again when it is closed or killed.
func (n *Network) Listen(name string) (*Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[name] != nil {
		return nil, fmt.Errorf("inproc: the name %q is taken", name)
	}
	l := &Listener{network: n, name: name, backlog: make(chan *conn, 128), closed: make(chan struct{}), conns: map[*conn]struct{}{}}
	n.listeners[name] = l
	return l, nil
}

// Kill breaks a listener as SIGKILL breaks a process: it stops listening, and every connection that
// it dialed or accepted is reset, and loses the data that had not been read. Unknown names are
// ignored.
func (n *Network) Kill(name string) {
	n.mu.Lock()
	l := n.listeners[name]
	n.mu.Unlock()
	if l != nil {
		l.kill()
	}
}

// Listener is one endpoint of a Network; it implements collective.Transport.
type Listener struct {
	network *Network
	name    string
	backlog chan *conn
	closed  chan struct{}

	mu    sync.Mutex
	ended bool
	dead  bool
	conns map[*conn]struct{}
}

// Addr is the name.
func (l *Listener) Addr() string { return l.name }

// Dial connects to a listener by name.
func (l *Listener) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	l.network.mu.Lock()
	to := l.network.listeners[addr]
	l.network.mu.Unlock()
	if to == nil {
		return nil, fmt.Errorf("dial %q: %w", addr, ErrRefused)
	}
	mine, theirs := pair(l, to)
	if !l.track(mine) {
		return nil, fmt.Errorf("dial %q: %w", addr, net.ErrClosed)
	}
	if !to.track(theirs) {
		_ = mine.Close()
		return nil, fmt.Errorf("dial %q: %w", addr, ErrRefused)
	}
	var err error
	select {
	case to.backlog <- theirs:
		return mine, nil
	case <-to.closed:
		err = fmt.Errorf("dial %q: %w", addr, ErrRefused)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	_ = mine.Close()
	_ = theirs.Close()
	return nil, err
}

// Accept waits for the next connection, until ctx ends or the listener is closed.
func (l *Listener) Accept(ctx context.Context) (net.Conn, error) {
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close stops listening. Accepted connections live on.
func (l *Listener) Close() error {
	if !l.end(false) {
		return nil
	}
	for {
		select {
		case c := <-l.backlog:
			_ = c.Close()
		default:
			return nil
		}
	}
}

func (l *Listener) kill() {
	l.end(true)
	l.mu.Lock()
	conns := slices.Collect(maps.Keys(l.conns))
	l.mu.Unlock()
	for _, c := range conns {
		c.reset()
	}
}

// end removes the listener from the network. It returns false if that was done before.
func (l *Listener) end(dead bool) bool {
	l.network.mu.Lock()
	if l.network.listeners[l.name] == l {
		delete(l.network.listeners, l.name)
	}
	l.network.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = l.dead || dead
	first := !l.ended
	if first {
		l.ended = true
		close(l.closed)
	}
	return first
}

// track records a connection for Kill. A closed listener may still dial, as closing a TCP listener
// does not hinder its process; a killed one may not.
func (l *Listener) track(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

func (l *Listener) untrack(c *conn) {
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
}
