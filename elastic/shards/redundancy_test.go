package shards

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/regroup-io/regroup/collective"
)

// TestWholeSaysWhatIsSurvived: of the commit before the last one, as it is planned; after a loss
// what is left, until the members have settled what they made again.
func TestWholeSaysWhatIsSurvived(t *testing.T) {
	for _, c := range []struct {
		options                 Options
		perNode                 int
		leaving                 bool       // members are about to leave with the second commit
		planned, after, settled Redundancy // after: the loss of the last one of four members
	}{
		{Options{}, 1, false, Redundancy{0, 0}, Redundancy{}, Redundancy{}},
		{Options{}, 1, true, Redundancy{0, 0}, Redundancy{0, 0}, Redundancy{0, 0}},
		{Options{Copies: 1}, 1, false, Redundancy{1, 1}, Redundancy{0, 0}, Redundancy{1, 1}},
		{Options{Copies: 1}, 1, true, Redundancy{1, 1}, Redundancy{0, 0}, Redundancy{1, 1}},
		{Options{Copies: 1}, 2, false, Redundancy{1, 1}, Redundancy{0, 0}, Redundancy{1, 1}},
		{Options{Copies: 1}, 4, false, Redundancy{1, 0}, Redundancy{0, 0}, Redundancy{1, 0}},
		{Options{Copies: 2}, 1, false, Redundancy{2, 2}, Redundancy{1, 1}, Redundancy{2, 2}},
		{Options{Copies: 3}, 2, false, Redundancy{3, 1}, Redundancy{2, 1}, Redundancy{2, 1}},
		{Options{Copies: 9}, 1, false, Redundancy{3, 3}, Redundancy{2, 2}, Redundancy{2, 2}},
		{Options{Parity: 2}, 1, false, Redundancy{1, 1}, Redundancy{0, 0}, Redundancy{1, 1}},
		{Options{Parity: 3}, 2, false, Redundancy{1, 0}, Redundancy{0, 0}, Redundancy{1, 0}},
		{Options{Parity: 2}, 1, true, Redundancy{1, 1}, Redundancy{0, 0}, Redundancy{1, 1}},
	} {
		name := fmt.Sprintf("%v, %d on a node, leaving %v", c.options, c.perNode, c.leaving)
		w := newWorld(t, 4, c.options, small...)
		w.perNode = c.perNode
		check := func(s *State, when string, whole Commit, want Redundancy) {
			t.Helper()
			commit, survives := s.Whole()
			if commit != whole {
				t.Errorf("%s, %s: %v is whole, want %v", name, when, commit, whole)
			}
			if whole != (Commit{}) && survives() != want {
				t.Errorf("%s, %s: %v survives %+v, want %+v", name, when, commit, survives(), want)
			}
		}
		next := func(ctx context.Context, c *collective.Communicator, m *worker, commit Commit, leaving bool) {
			if err := m.state.Settle(); err != nil {
				t.Error(err)
			}
			if err := c.Barrier(ctx); err != nil {
				t.Error(err)
			}
			m.kept = append(m.kept, commit)
			m.state.Save(ctx, c, commit, Parting{Planned: leaving}, false)
		}
		at := func(step uint64) Commit { return Commit{Generation: 1, Step: step} }
		w.begin(func(ctx context.Context, comm *collective.Communicator, m *worker) {
			check(m.state, "before a commit", Commit{}, Redundancy{})
			next(ctx, comm, m, at(0), false)
			check(m.state, "with the first commit on its way", Commit{}, Redundancy{})
			next(ctx, comm, m, at(1), false)
			check(m.state, "with the second one", at(0), c.planned)
			next(ctx, comm, m, at(2), c.leaving)
			check(m.state, "with the third one", at(1), c.planned)
		})
		if c.options == (Options{}) && !c.leaving { // nobody has the parts of one that is lost
			continue
		}
		w.members = w.members[:3]
		w.begin(func(ctx context.Context, comm *collective.Communicator, m *worker) {
			check(m.state, "after a loss", at(2), c.after)
			next(ctx, comm, m, Commit{Generation: 2, Step: 3}, false)
			check(m.state, "with the next commit", at(2), c.settled)
		})
	}
}

// TestAnyGoroutineMayAskWhatIsSurvived, while the state goes on.
func TestAnyGoroutineMayAskWhatIsSurvived(t *testing.T) {
	w := newWorld(t, 3, Options{Copies: 1}, small...)
	var asked sync.WaitGroup
	w.begin(save(Commit{Generation: 1, Step: 1}))
	w.members = w.members[:2]
	w.begin(func(ctx context.Context, c *collective.Communicator, m *worker) {
		_, survives := m.state.Whole()
		for range 2 {
			asked.Go(func() {
				if got := survives(); got != (Redundancy{}) {
					t.Errorf("%+v are survived, want none", got)
				}
			})
		}
		if err := m.state.Settle(); err != nil {
			t.Error(err)
		}
		if err := c.Barrier(ctx); err != nil {
			t.Error(err)
		}
		m.state.Save(ctx, c, Commit{Generation: 2, Step: 2}, Parting{}, false)
	})
	asked.Wait()
}
