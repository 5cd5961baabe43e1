package elastic

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/regroup-io/regroup/collective"
)

// TestRanksThatDivergeGoBackOnce: one rank announces another operation than the others, as a
// damaged header does. All go back to their commit, and the result is that of an undisturbed run.
func TestRanksThatDivergeGoBackOnce(t *testing.T) {
	f := newFleet(t, 3)
	var struck atomic.Bool
	f.onStep = func(ctx context.Context, w *worker, s *Session) error {
		if s.Step() == 7 && w.name == "w1" && struck.CompareAndSwap(false, true) {
			return collective.Broadcast(ctx, s.Comm(), make([]float32, 100), 0)
		}
		return nil
	}
	for _, name := range []string{"w0", "w1", "w2"} {
		f.start(name)
	}
	f.finish()
	f.check("w0", "w1", "w2")
	if !struck.Load() {
		t.Error("no rank has diverged")
	}
}

// TestRanksThatDivergeAtOneStepAgainEnd: the program is at fault, and says so.
func TestRanksThatDivergeAtOneStepAgainEnd(t *testing.T) {
	f := newFleet(t, 2)
	f.onStep = func(ctx context.Context, w *worker, s *Session) error {
		if s.Step() == 7 && w.name == "w1" {
			return collective.Broadcast(ctx, s.Comm(), make([]float32, 100), 0)
		}
		return nil
	}
	f.start("w0")
	f.start("w1")
	f.finish()
	named := false
	for _, w := range f.all() {
		if w.err == nil {
			t.Errorf("%s has finished", w.name)
		}
		named = named || errors.Is(w.err, collective.ErrDiverged)
	}
	if !named {
		t.Error("no rank says that the programs diverged")
	}
}
