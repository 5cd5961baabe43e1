//go:build cgo

package main

import (
	"errors"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective"
)

// origins returns both ranks' communicators of another origin.
func origins(t *testing.T, p [2]*communicator) (o [2]*communicator) {
	t.Helper()
	for r, c := range p {
		var err error
		if o[r], err = c.withOrigin(minOrigin); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// TestOriginsHaveOneOrder: an operation of one origin runs after what another one has started.
func TestOriginsHaveOneOrder(t *testing.T) {
	p := pair(t)
	o := origins(t, p)
	both := make(chan error, 2)
	for r := range p {
		go func() {
			ids := []uint64{sum(t, o[r], make([]int64, 1<<16)), sum(t, p[r], []int64{1}), sum(t, o[r], []int64{1})}
			err := p[r].do(p[r].ops, nil, func() error {
				return collective.Allreduce(background, p[r].Communicator, []int64{1}, collective.Sum)
			})
			for i, c := range []*communicator{o[r], p[r], o[r]} {
				err = errors.Join(err, c.waitFor(t, ids[i]))
			}
			both <- err
		}()
	}
	if err := errors.Join(<-both, <-both); err != nil {
		t.Error(err)
	}
}

// TestEqualOperationsOfTwoOrigins: a rank is at an operation of one origin, and its peer at one of
// another that looks the same. Both get an error, and not a sum of the two.
func TestEqualOperationsOfTwoOrigins(t *testing.T) {
	p := pair(t)
	o := origins(t, p)
	own, other := []int64{1}, []int64{1}
	first, second := sum(t, p[0], own), sum(t, o[1], other)
	for r, id := range []uint64{first, second} {
		if err := []*communicator{p[0], o[1]}[r].waitFor(t, id); !errors.Is(err, collective.ErrDiverged) {
			t.Errorf("rank %d: %v, want ErrDiverged", r, err)
		}
	}
}

// TestClosingAnOrigin ends neither the communicator nor what was started, and tells who waits for
// completions.
func TestClosingAnOrigin(t *testing.T) {
	p := pair(t)
	o := origins(t, p)
	pending := sum(t, o[0], []int64{1}) // which the other rank has not started
	closed := make(chan struct{})
	go func() { o[0].close(); close(closed) }()
	select {
	case <-closed:
		t.Error("it was closed before its operation has ended")
	case <-time.After(10 * time.Millisecond):
	}
	r, _ := lookUp[*request](pending)
	other := sum(t, o[1], []int64{1})
	if err := errors.Join(o[1].waitFor(t, other), r.wait(-1)); err != nil {
		t.Error(err)
	}
	<-closed
	if _, err := o[0].completions.wait(-1); err == nil {
		t.Error("completions can be waited for")
	}
	if err := o[0].do(o[0].ops, new(uint64), func() error { return nil }); !errors.Is(err, collective.ErrClosed) {
		t.Errorf("an operation after the end: %v", err)
	}
	ids := [2]uint64{sum(t, p[0], []int64{1}), sum(t, p[1], []int64{1})}
	for r, c := range p {
		if err := c.waitFor(t, ids[r]); err != nil {
			t.Error(err)
		}
	}
}

// TestAnOriginOfTheEngine cannot be chosen.
func TestAnOriginOfTheEngine(t *testing.T) {
	for _, n := range []int{-1, 0, int(collective.OriginElastic), maxOrigin + 1} {
		if _, err := pair(t)[0].withOrigin(n); !errors.Is(err, collective.ErrInvalid) {
			t.Errorf("origin %d: %v", n, err)
		}
	}
}
