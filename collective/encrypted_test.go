package collective

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
)

// eavesdropper is a transport that keeps all that is sent over the connections which it dials.
type eavesdropper struct {
	Transport
	deaf     bool // it keeps nothing
	mu       sync.Mutex
	captured bytes.Buffer
}

type tapped struct {
	net.Conn
	e *eavesdropper
}

func (e *eavesdropper) Dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := e.Transport.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return &tapped{conn, e}, nil
}

func (c *tapped) Write(p []byte) (int, error) {
	if !c.e.deaf {
		c.e.mu.Lock()
		c.e.captured.Write(p)
		c.e.mu.Unlock()
	}
	return c.Conn.Write(p)
}

func (e *eavesdropper) hears(text []byte) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return bytes.Contains(e.captured.Bytes(), text)
}

// TestNobodyReadsWhatEncryptedEndpointsSend: operations, messages and requests have the same
// results, and what is captured on the way shows nothing of them.
func TestNobodyReadsWhatEncryptedEndpointsSend(t *testing.T) {
	const world = 3
	text := []byte("the weights of a model, of which nobody should know")
	for name, made := range map[string]func(Transport) *Endpoint{"plain": NewEndpoint, "encrypted": NewEncryptedEndpoint} {
		t.Run(name, func(t *testing.T) {
			eps, taps := make([]*Endpoint, world), make([]*eavesdropper, world)
			for i := range eps {
				taps[i] = &eavesdropper{Transport: listenTCP(t)}
				eps[i] = made(taps[i])
				t.Cleanup(func() { _ = eps[i].Close() })
			}
			comms := form(t, eps, 1, nil)
			defer closeAll(comms)
			service := Service{Job: "job", Generation: 1, Token: "clients", Serve: echo}
			eps[0].SetService(&service)
			defer eps[0].SetService(nil)
			mustAll(t, world, func(r int) error {
				big := make([]float32, 300_000)
				for i := range big {
					big[i] = float32(r)
				}
				p := bytes.Repeat(text, 1000)
				if r != 0 {
					clear(p)
				}
				if err := errors.Join(Allreduce(soon(t), comms[r], big, Sum), Broadcast(soon(t), comms[r], p, 0)); err != nil {
					return err
				}
				if big[299_999] != 3 || !bytes.Equal(p, bytes.Repeat(text, 1000)) {
					return fmt.Errorf("rank %d has %v and %q", r, big[299_999], p[:20])
				}
				if r == 0 {
					return comms[r].Send(soon(t), 1, text)
				}
				if r == 1 {
					if err := comms[r].Recv(soon(t), 0, p[:len(text)]); err != nil {
						return err
					}
				}
				return nil
			})
			c, err := eps[1].DialService(soon(t), eps[0].Addr(), service)
			if err != nil {
				t.Fatal(err)
			}
			expectText(t, c, string(text))
			_ = c.Close()
			for i, tap := range taps[:2] { // the third has only received it
				if got := tap.hears(text); got != (name == "plain") {
					t.Errorf("what rank %d sends can be read: %t", i, got)
				}
			}
		})
	}
}

// TestAnEncryptedEndpointRefusesOthers: no connection falls back to what can be read.
func TestAnEncryptedEndpointRefusesOthers(t *testing.T) {
	for _, encrypted := range []int{0, 1} {
		eps := []*Endpoint{NewEndpoint(listenTCP(t)), NewEndpoint(listenTCP(t))}
		_ = eps[encrypted].Close()
		eps[encrypted] = NewEncryptedEndpoint(listenTCP(t))
		errs := each(2, func(rank int) error {
			c, err := New(soon(t), options(eps, 1, rank))
			if err == nil {
				_ = c.Close()
			}
			return err
		})
		if !errors.Is(errs[0], ErrRefused) && !errors.Is(errs[1], ErrRefused) || !strings.Contains(fmt.Sprint(errs), "encryption is ") {
			t.Errorf("%v", errs)
		}
		for _, e := range eps {
			_ = e.Close()
		}
	}
	e := NewEncryptedEndpoint(listenTCP(t))
	defer func() { _ = e.Close() }()
	if _, err := New(soon(t), Options{Job: "job", Generation: 1, World: 1, Endpoint: e}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "Token is empty") {
		t.Errorf("without a token: %v", err)
	}
}

// TestAnAbortReachesAllOverEncryptedConnections: with its reason.
func TestAnAbortReachesAllOverEncryptedConnections(t *testing.T) {
	eps := make([]*Endpoint, 3)
	for i := range eps {
		eps[i] = NewEncryptedEndpoint(listenTCP(t))
		t.Cleanup(func() { _ = eps[i].Close() })
	}
	comms := form(t, eps, 1, nil)
	defer closeAll(comms)
	lost := errors.New("a bad sample")
	mustAll(t, 3, func(r int) error { return Allreduce(soon(t), comms[r], make([]int64, 100_000), Sum) })
	errs := each(3, func(r int) error {
		if r == 2 {
			comms[r].Abort(lost)
			return nil
		}
		return Allreduce(soon(t), comms[r], make([]int64, 100_000), Sum)
	})
	for r, err := range errs[:2] {
		if !errors.Is(err, ErrAborted) || !strings.Contains(err.Error(), lost.Error()) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
