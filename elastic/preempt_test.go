package elastic

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regroup-io/regroup/elastic/internal/updates"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// TestNoticeOfPreemptionMakesAllRanksCommit, long before their program would; the program's
// callback has the deadline, and training goes on until another worker takes the place.
func TestNoticeOfPreemptionMakesAllRanksCommit(t *testing.T) {
	f := newFleet(t, 2)
	f.every = 1000
	until := time.Now().Add(time.Hour).Round(0).UTC()
	var notified, ended atomic.Int64
	f.options = func(name string, o *Options) {
		o.OnPreempt = func(ctx context.Context, n PreemptionNotice) {
			if d, ok := ctx.Deadline(); name != "w1" || n.Reason != "spot" || !n.Until.Equal(until) || !ok || !d.Equal(until) {
				t.Errorf("%s hears of %+v", name, n)
			}
			notified.Add(1)
			<-ctx.Done() // it is waited for, and notified of the end
			ended.Add(1)
		}
	}
	var committed atomic.Uint64
	f.onStep = func(_ context.Context, w *worker, s *Session) error {
		switch {
		case s.Step() == 5 && w.name == "w1":
			f.hub.Update(func() { f.hub.Preempted["w1"] = workerprotocol.Change{Reason: "spot", Until: until} })
			eventually(t, func() bool { return s.updates.Pending() == updates.Preempted && notified.Load() == 1 })
		case s.Step() == 9 && w.name == "w0":
			committed.Store(w.state.Committed().Step)
		}
		return nil
	}
	f.start("w0")
	f.start("w1")
	f.finish()
	if done := f.check("w0"); done != 2 || f.hub.Generation != 1 {
		t.Errorf("%d workers are done in generation %d, want 2 in 1", done, f.hub.Generation)
	}
	if committed.Load() != 6 {
		t.Errorf("at step 9 the newest commit is %d, want 6: the notice came before that step, once", committed.Load())
	}
	if notified.Load() != 1 || ended.Load() != 1 {
		t.Errorf("%d callbacks, %d have ended when Run returned; want one", notified.Load(), ended.Load())
	}
}

// leavingNow is a notice without a time.
var leavingNow = workerprotocol.Change{Reason: "spot"}

// TestAPreemptedWorkerLeavesInOrder: somebody takes its place, Run returns nil, and nothing is
// lost.
func TestAPreemptedWorkerLeavesInOrder(t *testing.T) {
	f := newFleet(t, 3)
	f.onStep = func(_ context.Context, w *worker, s *Session) error {
		if s.Generation == 1 && s.Step() == 7 && w.name == "w0" {
			f.hub.Update(func() {
				f.hub.Preempted["w1"] = leavingNow
				f.hub.Removed["w1"], f.hub.Planned = true, true
			})
			eventually(t, func() bool { return s.updates.Pending() == updates.Planned })
		}
		return nil
	}
	for i := range 3 {
		f.start(fmt.Sprint("w", i))
	}
	f.finish()
	if done := f.check("w0"); done != 2 || f.hub.Generation != 2 {
		t.Errorf("%d workers are done in generation %d, want 2 in 2", done, f.hub.Generation)
	}
	if err := f.workers["w1"].err; !errors.Is(err, ErrRemoved) || !errors.Is(err, ErrUnfinished) {
		t.Errorf("the preempted worker: %v, want ErrRemoved", err)
	}
	f.calm()
	for name, r := range f.hub.FirstSteps[2] {
		if r.First.Lost != 0 {
			t.Errorf("%s lost %d steps", name, r.First.Lost)
		}
	}
}
