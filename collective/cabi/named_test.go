//go:build cgo

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/queue"
)

// byName starts the sum of some numbers.
func byName(t *testing.T, c *communicator, name string, v []int64) uint64 {
	t.Helper()
	var id uint64
	if err := c.submit(&id, func(q *queue.Queue) *queue.Handle {
		return q.Allreduce(name, "", collective.Of(v), collective.Sum, 0)
	}); err != nil {
		t.Fatal(err)
	}
	return id
}

// TestNamesArePairedUp in any order, concurrently with operations that have a fixed order.
func TestNamesArePairedUp(t *testing.T) {
	p := pair(t)
	const names = 50
	v, ids, other := [2][names][]int64{}, [2][names]uint64{}, [2][]int64{{1}, {2}}
	var started [2]uint64
	for r, c := range p {
		for k, i := range rand.Perm(names) {
			v[r][i] = make([]int64, i+1)
			v[r][i][i] = int64(10*i + r)
			ids[r][i] = byName(t, c, fmt.Sprint("gradient ", i), v[r][i])
			if k == names/2 {
				started[r] = sum(t, c, other[r])
			}
		}
	}
	for r, c := range p {
		for i, id := range ids[r] {
			if err := c.waitFor(t, id); err != nil {
				t.Fatal(err)
			}
			if want := int64(20*i + 1); v[r][i][i] != want {
				t.Errorf("rank %d, %d: %d, want %d", r, i, v[r][i][i], want)
			}
		}
		if err := c.waitFor(t, started[r]); err != nil || other[r][0] != 3 {
			t.Errorf("rank %d: what has no name: %d, %v", r, other[r][0], err)
		}
	}
}

func TestANameThatIsNotTheSame(t *testing.T) {
	p := pair(t)
	ids := [2]uint64{byName(t, p[0], "a", []int64{1}), byName(t, p[1], "a", []int64{1, 2})}
	for r, c := range p {
		var m *queue.MismatchError
		if err := c.waitFor(t, ids[r]); !errors.As(err, &m) || m.Name != "a" {
			t.Errorf("rank %d: %v, want a MismatchError about a", r, err)
		}
	}
}

func TestALossEndsWhatHasAName(t *testing.T) {
	p := pair(t)
	id := byName(t, p[0], "a", []int64{1})
	p[1].abort(1, "it was killed")
	var lost *collective.PeerLostError
	if err := p[0].waitFor(t, id); !errors.As(err, &lost) || lost.Rank != 1 {
		t.Errorf("%v, want that rank 1 is lost", err)
	}
}

// TestALossThatAnOperationHasSaidIsTheCommunicators: named operations have connections of their
// own, which may notice a loss first.
func TestALossThatAnOperationHasSaidIsTheCommunicators(t *testing.T) {
	for range 100 {
		p := pair(t)
		id := byName(t, p[0], "a", []int64{1})
		if err := p[1].waitFor(t, byName(t, p[1], "a", []int64{1})); err != nil {
			t.Fatal(err)
		}
		if err := p[0].waitFor(t, id); err != nil {
			t.Fatal(err)
		}
		id = byName(t, p[0], "b", []int64{1})
		p[1].namedQueue().Close()
		if err := p[0].waitFor(t, id); err == nil {
			t.Fatal("the operation has succeeded without a peer")
		} else if p[0].Failed() == nil {
			t.Fatalf("the operation failed with %v, and the communicator says that it works", err)
		}
	}
}
