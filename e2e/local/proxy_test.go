package local

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// proxy forwards connections to the broker and can be cut.
type proxy struct {
	l    net.Listener
	to   string
	wait sync.WaitGroup

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

// newProxy forwards to a nats:// URL until the test ends.
func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, to: strings.TrimPrefix(to, "nats://"), conns: map[net.Conn]bool{}}
	p.wait.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.set(true)
		p.wait.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.l.Addr().String() }

// set cuts the proxy with all its connections, or opens it.
func (p *proxy) set(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	for c := range p.conns {
		if cut {
			_ = c.Close()
		}
	}
}

func (p *proxy) accept() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.to)
		if err != nil || !p.keep(in, out) {
			_ = in.Close()
			if out != nil {
				_ = out.Close()
			}
			continue
		}
		p.wait.Go(func() { p.carry(in, out) })
		p.wait.Go(func() { p.carry(out, in) })
	}
}

func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = !p.cut
	}
	return !p.cut
}

func (p *proxy) carry(to, from net.Conn) {
	_, _ = io.Copy(to, from) // ends with either
	_, _ = to.Close(), from.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, to)
}
