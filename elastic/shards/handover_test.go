package shards

import (
	"context"
	"fmt"
	"testing"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/reshard"
)

// TestThoseWhoLeaveHandOver has all sets of members leave, in all worlds up to five: those who stay
// have all of the commit, to the bit, after what the leavers had was sent once and nothing else.
func TestThoseWhoLeaveHandOver(t *testing.T) {
	// 60 rows divide evenly among all of these worlds, so a member knows what will be whose.
	rows := reshard.Tensor{Name: "w", Type: "int16", Width: 2, Shape: []int{60, 7}}
	for _, o := range []Options{{Copies: 1}, {Parity: 2}} {
		for n := 2; n <= 5; n++ {
			for leavers := 1; leavers < 1<<n-1; leavers++ {
				what := fmt.Sprintf("%v: %05b of %d leave", o, leavers, n)
				w := newWorld(t, n, o, rows, reshard.Tensor{Name: "step", Type: "int64", Width: 8})
				leaving, handed := make([]bool, n), 0
				var stay []*worker
				for rank, m := range w.members {
					if leaving[rank] = leavers&(1<<rank) != 0; !leaving[rank] {
						stay = append(stay, m)
					}
				}
				commit := Commit{Generation: 1, Step: 1}
				w.begin(func(ctx context.Context, c *collective.Communicator, m *worker) {
					m.kept = append(m.kept, commit)
					m.state.Save(ctx, c, commit, Parting{Planned: true, Leaving: leaving}, false)
					if err := m.state.Settle(); err != nil {
						t.Errorf("%s: %v", what, err)
					}
				})
				for rank, m := range w.members {
					if handed += m.state.kept(commit); leaving[rank] && m.state.kept(commit) > 0 {
						t.Errorf("%s: %d was sent something", what, rank)
					}
				}
				if want := (n - len(stay)) * len(w.content[0]) / n; handed != want {
					t.Errorf("%s: %d bytes were sent before, want %d", what, handed, want)
				}
				w.members = stay
				w.received.Store(0)
				chosen := w.begin(func(context.Context, *collective.Communicator, *worker) {})
				if w.check(what); chosen != commit {
					t.Errorf("%s: the others go on from %v", what, chosen)
				}
				w.moved(what, leaving, handed)
			}
		}
	}
}

// moved compares what was sent with what those who stay need and had not: rows that one of them has
// for another, and the rows of those who leave.
func (w *world) moved(what string, leaving []bool, handed int) {
	rows, n, best := w.tensors[0].Shape[0], len(leaving), 0
	rank := 0
	for before, leaves := range leaving {
		if leaves {
			continue
		}
		begin, end := rank*rows/len(w.members), (rank+1)*rows/len(w.members)
		for row := begin; row < end; row++ {
			if row*n/rows != before {
				best += w.tensors[0].Shape[1] * w.tensors[0].Width
			}
		}
		rank++
	}
	if got := handed + int(w.received.Load()); got != best {
		w.t.Errorf("%s: %d bytes were sent in all, want %d", what, got, best)
	}
}
