package job

import (
	"sync"
	"testing"
	"time"
)

// writes counts the writes to it.
type writes struct {
	mu    sync.Mutex
	n     int
	grown chan struct{}
}

func (w *writes) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	if w.grown != nil {
		close(w.grown)
		w.grown = nil
	}
	return len(b), nil
}

// await waits for n writes.
func (w *writes) await(t *testing.T, n int) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		w.mu.Lock()
		if w.n >= n {
			w.mu.Unlock()
			return
		}
		grown := make(chan struct{})
		w.grown = grown
		w.mu.Unlock()
		select {
		case <-grown:
		case <-deadline:
			t.Fatalf("fewer than %d writes", n)
		}
	}
}
