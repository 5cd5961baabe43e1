package elastictest

import (
	"context"
	"errors"
	"testing"

	"github.com/regroup-io/regroup/collective/inproc"
)

// ErrKilled is the cause of the end of a killed worker's context.
var ErrKilled = errors.New("killed")

// Start adds a worker. It must call elastic.Run with the returned context and transport and with
// its name as Token, and pass the result to Ended.
func (h *Hub) Start(t testing.TB, name string) (context.Context, *inproc.Listener) {
	t.Helper()
	l, err := h.Network.Listen(name)
	if err != nil {
		t.Error(err) // t.Fatal is only for the test's goroutine
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	h.Update(func() {
		h.Alive[name] = true
		h.cancel[name] = cancel
	})
	return ctx, l
}

// Kill ends a worker like SIGKILL; its simulated agent notices.
func (h *Hub) Kill(name string) {
	h.Network.Kill(name)
	h.mu.Lock()
	cancel := h.cancel[name]
	h.mu.Unlock()
	if cancel != nil {
		cancel(ErrKilled)
	}
	h.gone(name)
}

// Ended reports the result of Run: an agent sees a process that fails.
func (h *Hub) Ended(name string, err error) {
	if err != nil {
		h.gone(name)
	}
	h.mu.Lock()
	cancel := h.cancel[name]
	h.mu.Unlock()
	if cancel != nil {
		cancel(nil)
	}
}

func (h *Hub) gone(name string) {
	h.Update(func() {
		delete(h.Alive, name)
		delete(h.Joined, name)
	})
}
