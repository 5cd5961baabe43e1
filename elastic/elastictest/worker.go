package elastictest

import (
	"context"
	"errors"
	"testing"

	"github.com/regroup-io/regroup/collective/inproc"
)

// ErrKilled is what ends the context of a worker that was killed.
var ErrKilled = errors.New("killed")

// Start makes a worker alive. It must call elastic.Run with the context and the transport that are
// returned, its name as Token, and pass the result to Ended.
func (h *Hub) Start(t testing.TB, name string) (context.Context, *inproc.Listener) {
	t.Helper()
	l, err := h.Network.Listen(name)
	if err != nil {
		t.Error(err) // it may be called by a worker
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	h.Update(func() {
		h.Alive[name] = true
		h.cancel[name] = cancel
	})
	return ctx, l
}

// Kill ends a worker the way SIGKILL does, and what plays its agent notices.
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

// Ended takes what Run has returned: a process that fails is seen by its agent.
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
