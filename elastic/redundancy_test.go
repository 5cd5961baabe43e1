package elastic

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/regroup-io/regroup/elastic/elastictest"
	"github.com/regroup-io/regroup/elastic/shards"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// awaitRedundancy waits until what was reported last is, in the generation of a session, that the
// commit of a step survives so many losses, of workers and of nodes, which are one of each.
func awaitRedundancy(t *testing.T, hub *elastictest.Hub, s *Session, whole uint64, losses int) {
	t.Helper()
	var r workerprotocol.Redundancy
	eventually(t, func() bool {
		hub.Update(func() {
			if n := len(hub.Redundancies); n > 0 {
				r = hub.Redundancies[n-1]
			}
		})
		return r.Generation == s.Generation && r.Commit.Step == whole && r.Losses == losses && r.NodeLosses == losses
	})
	if t.Failed() {
		t.Logf("at step %d in generation %d: %+v, want that the commit of step %d survives %d losses", s.Step(), s.Generation, r, whole, losses)
	}
	received := r.Commit.Generation < s.Generation // maybe: a rank may have been behind the others at the loss
	if r.Made.IsZero() && !received || r.Checkpoint != nil {
		t.Errorf("at step %d in generation %d: %+v", s.Step(), s.Generation, r)
	}
}

// TestAShardedStateSaysWhatItSurvives: with each commit and when a generation begins, and it counts
// what has arrived. A loss takes copies along; they have been made again when the next commit is
// agreed on.
func TestAShardedStateSaysWhatItSurvives(t *testing.T) {
	for _, c := range []struct {
		kept         shards.Options
		whole, after int
	}{{shards.Options{Copies: 1}, 1, 0}, {shards.Options{Copies: 2}, 2, 1}, {shards.Options{Parity: 2}, 1, 0}, {shards.Options{Parity: 4}, 1, 0}} {
		t.Run(c.kept.String(), func(t *testing.T) {
			t.Parallel()
			j := newShardedJob(t, 4, c.kept)
			j.steps = 8
			var once sync.Once
			j.onStep = func(name string, s *Session) {
				step := s.Step()
				switch {
				case s.Generation == 1 && step == 5 && s.Rank == 2:
					once.Do(func() { j.hub.Kill(name) })
				case s.Rank != 0:
				case step == 0: // the initial state is on its way to those who keep copies
					j.hub.Update(func() {
						if len(j.hub.Redundancies) > 0 {
							t.Errorf("before anything is whole: %+v", j.hub.Redundancies)
						}
					})
				case s.Generation == 1:
					awaitRedundancy(t, j.hub, s, step-1, c.whole)
				case s.first != nil: // no step was made since the loss
					awaitRedundancy(t, j.hub, s, step, c.after)
				default:
					awaitRedundancy(t, j.hub, s, step-1, min(c.whole, s.World-1))
				}
			}
			for i := range 4 {
				j.start(fmt.Sprint("w", i))
			}
			if done := j.finish(); done != 3 {
				t.Errorf("%d are done: %v", done, j.errs)
			}
		})
	}
}

// TestAReplicatedStateSaysWhatItSurvives: all losses but one, at once after a loss too.
func TestAReplicatedStateSaysWhatItSurvives(t *testing.T) {
	f := newFleet(t, 3)
	f.every = 1
	var once sync.Once
	f.onStep = func(_ context.Context, w *worker, s *Session) error {
		if s.Rank == 0 {
			awaitRedundancy(t, f.hub, s, s.Step(), s.World-1)
		}
		if s.Generation == 1 && s.Rank == 1 && s.Step() == 4 {
			once.Do(func() { f.kill(w.name) })
		}
		return nil
	}
	for i := range 3 {
		f.start(fmt.Sprint("w", i))
	}
	f.finish()
}

// TestTheNewestCheckpointIsSaid: the one that was written, with the next commit, and the one with
// which a job begins, whose commit is of unknown age.
func TestTheNewestCheckpointIsSaid(t *testing.T) {
	dir := t.TempDir()
	reported := func(f *fleet, ok func(workerprotocol.Redundancy) bool) {
		t.Helper()
		eventually(t, func() (found bool) {
			f.hub.Update(func() { found = slices.ContainsFunc(f.hub.Redundancies, ok) })
			return found
		})
	}
	first := job(t, dir, 2, 8, func(f *fleet) {
		f.every = 1
		before := f.onStep
		f.onStep = func(ctx context.Context, w *worker, s *Session) error {
			switch {
			case s.Rank == 0 && s.Step() == 4:
				eventually(t, func() bool { _, _, ok := s.writer.Written(); return ok })
			case s.Rank == 0 && s.Step() == 6:
				reported(f, func(r workerprotocol.Redundancy) bool {
					return r.Checkpoint != nil && r.Checkpoint.Generation == 1 && r.Checkpoint.Step < r.Commit.Step && !r.Written.Before(r.Made.Add(-hangs))
				})
			}
			return before(ctx, w, s)
		}
	})
	stopped := first.workers["w0"].state.Committed().Step
	job(t, dir, 2, stopped+4, func(f *fleet) {
		before := f.onStep
		f.onStep = func(ctx context.Context, w *worker, s *Session) error {
			if s.Rank == 0 && s.Step() == stopped {
				reported(f, func(r workerprotocol.Redundancy) bool {
					return r.Commit.Step == stopped && r.Losses == 1 && r.Made.IsZero() && r.Checkpoint != nil && r.Checkpoint.Step == stopped && r.Written.IsZero()
				})
			}
			return before(ctx, w, s)
		}
	})
}

// TestLiveCommitsAreWhole: all losses but one are survived.
func TestLiveCommitsAreWhole(t *testing.T) {
	j := newLiveJob(t, 2)
	var once sync.Once
	j.onLine = func(_ string, s *Session, line int) {
		if line == 0 && s.Rank == 0 && s.state.replica.Live() {
			once.Do(func() { awaitRedundancy(t, j.hub, s, s.Step(), 1) })
		}
	}
	j.start("w0")
	j.start("w1")
	if done := j.finish(); done != 2 {
		t.Errorf("%d are done: %v", done, j.errs)
	}
}
