//go:build cgo

package main

import (
	"errors"
	"testing"

	"github.com/regroup-io/regroup/collective"
)

// sum starts an allreduce of one number.
func sum(t *testing.T, c *communicator, v []int64) uint64 {
	t.Helper()
	var id uint64
	err := c.do(c.ops, &id, func() error { return collective.Allreduce(background, c.Communicator, v, collective.Sum) })
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (c *communicator) waitFor(t *testing.T, id uint64) error {
	t.Helper()
	r, there := lookUp[*request](id)
	if !there {
		t.Fatalf("request %d is not known", id)
	}
	return r.wait(-1)
}

// TestWhatIsStartedRunsInOrder: an operation that is called runs after those that were started
// before.
func TestWhatIsStartedRunsInOrder(t *testing.T) {
	p := pair(t)
	v := [2][3][]int64{}
	ids := [2][2]uint64{}
	for r, c := range p {
		for i := range v[r] {
			v[r][i] = []int64{int64(10*i + r)}
		}
		ids[r][0], ids[r][1] = sum(t, c, v[r][0]), sum(t, c, v[r][1])
	}
	last := make(chan error, 1)
	go func() {
		last <- p[0].do(p[0].ops, nil, func() error {
			return collective.Allreduce(background, p[0].Communicator, v[0][2], collective.Sum)
		})
	}()
	if err := p[1].do(p[1].ops, nil, func() error {
		return collective.Allreduce(background, p[1].Communicator, v[1][2], collective.Sum)
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-last; err != nil {
		t.Fatal(err)
	}
	for r, c := range p {
		for i, id := range ids[r] {
			if err := c.waitFor(t, id); err != nil {
				t.Fatal(err)
			}
			if want := int64(20*i + 1); v[r][i][0] != want {
				t.Errorf("rank %d, operation %d: %d, want %d", r, i, v[r][i][0], want)
			}
			if _, there := lookUp[*request](id); there {
				t.Errorf("request %d is still known", id)
			}
		}
		if v[r][2][0] != 41 {
			t.Errorf("rank %d, what was carried out: %d, want 41", r, v[r][2][0])
		}
	}
}

// TestWatchedRequestsAreTold, whether they were watched before or after their end.
func TestWatchedRequestsAreTold(t *testing.T) {
	p := pair(t)
	v := [2][]int64{{1}, {2}}
	early := sum(t, p[0], v[0])
	r, _ := lookUp[*request](early)
	if err := r.watch(); err != nil {
		t.Fatal(err)
	}
	if err := r.watch(); !errors.Is(err, collective.ErrInvalid) {
		t.Errorf("watched twice: %v, want ErrInvalid", err)
	}
	if _, err := p[0].completions.wait(0); !errors.Is(err, errTimeout) {
		t.Errorf("nothing has ended: %v, want errTimeout", err)
	}
	late := sum(t, p[1], v[1])
	l, _ := lookUp[*request](late)
	<-l.done
	if err := l.watch(); err != nil {
		t.Fatal(err)
	}
	for r, id := range []uint64{early, late} {
		got, err := p[r].completions.wait(-1)
		if err != nil || got.id != id || got.err != nil {
			t.Errorf("rank %d: %+v, %v, want request %d", r, got, err, id)
		}
	}
}

// TestCloseEndsWhatWasStarted, and nothing can be started afterwards.
func TestCloseEndsWhatWasStarted(t *testing.T) {
	p := pair(t)
	id := sum(t, p[0], []int64{1}) // the other never comes
	p[0].close()
	if err := p[0].waitFor(t, id); !errors.Is(err, collective.ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
	if _, err := p[0].newRequest(); !errors.Is(err, collective.ErrClosed) {
		t.Errorf("started on a closed communicator: %v, want ErrClosed", err)
	}
	if _, err := p[0].completions.wait(-1); !errors.Is(err, collective.ErrClosed) {
		t.Errorf("waited for any: %v, want ErrClosed", err)
	}
}
