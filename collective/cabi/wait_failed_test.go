//go:build cgo

package main

import (
	"errors"
	"testing"

	"github.com/regroup-io/regroup/collective"
)

// TestWaitFailed: it returns why the communicator has ended, on every rank, and not before.
func TestWaitFailed(t *testing.T) {
	p := pair(t)
	if err := p[0].waitFailed(0); !errors.Is(err, errTimeout) {
		t.Errorf("while it works: %v, want errTimeout", err)
	}
	waits := make(chan error)
	for _, c := range p {
		go func() { waits <- c.waitFailed(-1) }()
	}
	p[1].abort(1, "the test says so")
	for range p {
		if lost := new(collective.PeerLostError); !errors.As(<-waits, &lost) || lost.Rank != 1 {
			t.Errorf("after the abort: %v, want the loss of rank 1", lost)
		}
	}

	q := pair(t)
	go func() { waits <- q[0].waitFailed(-1) }()
	q[0].close()
	if err := <-waits; !errors.Is(err, collective.ErrClosed) {
		t.Errorf("after close: %v, want ErrClosed", err)
	}
}
