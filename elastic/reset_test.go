package elastic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/regroup-io/regroup/elastic/internal/updates"
)

// TestResetCallbacksRunOnAllMembersOnceTheStateIsInSync: what they change is the same everywhere,
// though one of the members is new, and the training function sees it.
func TestResetCallbacksRunOnAllMembersOnceTheStateIsInSync(t *testing.T) {
	f := newFleet(t, 2)
	type call struct {
		order      string
		now, then  uint64
		world, had int
		step       uint64
	}
	var mu sync.Mutex
	calls, rates := map[string][]call{}, map[string][]float64{}
	f.register = func(w *worker) {
		rate := new(float64)
		*rate = 1
		w.state.Object("rate", rate)
		for _, order := range []string{"first", "second"} {
			w.state.OnReset(func(_ context.Context, s *Session, before Membership) error {
				mu.Lock()
				defer mu.Unlock()
				calls[w.name] = append(calls[w.name], call{order, s.Generation, before.Generation, s.World, before.World, s.Step()})
				*rate = float64(s.World)
				return nil
			})
		}
		w.rate = rate
	}
	var once sync.Once
	f.onStep = func(_ context.Context, w *worker, s *Session) error {
		if s.Generation == 1 && s.Step() == 9 {
			once.Do(func() { f.start("late") })
		}
		if s.Generation == 1 && s.Step() == 20 {
			eventually(t, func() bool { return s.updates.Pending() == updates.Planned })
		}
		mu.Lock()
		defer mu.Unlock()
		rates[w.name] = append(rates[w.name], *w.rate)
		return nil
	}
	f.start("w0")
	f.start("w1")
	f.finish()
	if done := f.check("w0"); done != 3 || f.hub.Generation != 2 {
		t.Fatalf("%d workers are done in generation %d, want 3 in 2", done, f.hub.Generation)
	}
	for name, had := range map[string]int{"w0": 2, "w1": 2, "late": 0} {
		got := calls[name]
		if len(got) != 2 || got[0].order != "first" || got[1].order != "second" || got[0].now != 2 || got[0].had != had || got[0].world != 3 ||
			got[0].then != uint64(min(had, 1)) || got[0].step != calls["w0"][0].step || got[0].step == 0 {
			t.Errorf("%s: calls %+v", name, got)
		}
		want := []float64{1, 3}
		if had == 0 {
			want = want[1:]
		}
		if rates := slices.Compact(rates[name]); !slices.Equal(rates, want) {
			t.Errorf("%s trained with rates %v, want %v", name, rates, want)
		}
	}
}

// TestAResetCallbackMayFail like the training function: what is about the generation leads to the
// next one.
func TestAResetCallbackMayFail(t *testing.T) {
	f := newFleet(t, 3)
	var once sync.Once
	f.register = func(w *worker) {
		w.state.OnReset(func(ctx context.Context, s *Session, _ Membership) error {
			if s.Generation == 2 && w.name == "w0" {
				once.Do(func() { f.kill("w1") })
			}
			if err := s.Comm().Barrier(ctx); err != nil {
				return fmt.Errorf("barrier of a callback: %w", err)
			}
			if w.name == "w0" {
				return errBroken
			}
			return nil
		})
	}
	f.onStep = func(_ context.Context, w *worker, s *Session) error {
		if s.Generation == 1 && s.Step() == 6 && w.name == "w2" {
			f.kill("w2")
		}
		return nil
	}
	for i := range 3 {
		f.start(fmt.Sprint("w", i))
	}
	f.finish()
	if err := f.workers["w0"].err; f.hub.Generation != 3 || !errors.Is(err, errBroken) {
		t.Errorf("generation %d, error %v; want that the lost peer led to 3 and the broken callback ended it", f.hub.Generation, err)
	}
}
