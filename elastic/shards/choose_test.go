package shards

import (
	"context"
	"errors"
	"testing"

	"github.com/regroup-io/regroup/collective"
)

// newcomersAlone has one member make a commit, n others come in, and that one be lost before they
// have a commit of their own.
func newcomersAlone(t *testing.T, n int, o Options) (*world, Commit) {
	w := newWorld(t, 1, o, small...)
	commit := Commit{Generation: 1, Step: 1}
	w.begin(save(commit))
	for range n {
		w.members = append(w.members, &worker{state: New(o), kept: []Commit{commit}})
	}
	if chosen := w.begin(func(context.Context, *collective.Communicator, *worker) {}); chosen != commit {
		t.Fatalf("the newcomers begin with %v", chosen)
	}
	w.members = w.members[1:]
	return w, commit
}

// TestACommitOfWhichOnlyParityIsLeft: newcomers keep the parity of one who is lost, and have no
// parts of the commit themselves.
func TestACommitOfWhichOnlyParityIsLeft(t *testing.T) {
	w, commit := newcomersAlone(t, 2, Options{Parity: 2})
	if chosen := w.begin(func(context.Context, *collective.Communicator, *worker) {}); chosen != commit {
		t.Fatalf("the newcomers go on with %v", chosen)
	}
	w.check("two newcomers")
}

// TestNewcomersDoNotBeginAnew: what is left is not an initial state, but a commit whose parts are
// lost, with those who had them, or with some of those who kept their parity. Nobody may take what
// is in memory for it.
func TestNewcomersDoNotBeginAnew(t *testing.T) {
	for _, o := range []Options{{}, {Parity: 2}} {
		w, _ := newcomersAlone(t, 2, o)
		if o.Parity > 0 {
			w.members = w.members[1:]
		}
		w.run(func(ctx context.Context, c *collective.Communicator, m *worker) error {
			if chosen, found, err := m.state.Choose(ctx, c, m.kept); !errors.Is(err, ErrNotWhole) {
				t.Errorf("%v: %v, %t, %v", o, chosen, found, err)
			}
			return nil
		})
	}
}

// TestAnInitialStateThatNobodyFilled: members that were lost when all had its name and nobody its
// parts begin with it again.
func TestAnInitialStateThatNobodyFilled(t *testing.T) {
	w := newWorld(t, 2, Options{Copies: 1}, small...)
	for _, m := range w.members {
		m.kept = []Commit{{Generation: 1}}
	}
	w.run(func(ctx context.Context, c *collective.Communicator, m *worker) error {
		if chosen, found, err := m.state.Choose(ctx, c, m.kept); found || err != nil {
			t.Errorf("%v, %t, %v", chosen, found, err)
		}
		return nil
	})
}
