package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/elastic"
	"github.com/regroup-io/regroup/elastic/elastictest"
)

// TestTheWeightsAreThoseOfOneWorker to the bit: with more workers, and when they die in the middle
// of a step and others come. No micro-batch is computed again but the dead workers'.
func TestTheWeightsAreThoseOfOneWorker(t *testing.T) {
	train, test := data(t)
	c := config{epochs: 1, batch: 64, micro: 8, commitEvery: 1, rate: 0.05, seed: 1, reproducible: true}
	one := newTrainer(c, train, test, io.Discard)
	micros := 0
	one.afterMicro = func(*elastic.Session, int) { micros++ }
	if err := elastic.Run(context.Background(), elastic.Options{}, one.state, one.train); err != nil {
		t.Fatal(err)
	}
	if one.results.Accuracy < 0.85 {
		t.Errorf("one worker learns to read %.3f of the digits", one.results.Accuracy)
	}
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			f := &fleet{t: t, hub: elastictest.New(t, n), train: train, test: test, config: c}
			f.expect(n, one)
		})
	}
	t.Run("three, with kills and joins", func(t *testing.T) {
		f := &fleet{t: t, hub: elastictest.New(t, 3), train: train, test: test, config: c}
		var mu sync.Mutex
		begun := sync.NewCond(&mu)
		at := map[string]uint64{} // the step that each worker has begun
		computed, ofStep := 0, map[string]map[uint64]int{"w0": {}, "w1": {}, "w2": {}, "late": {}}
		var once [3]sync.Once
		// die kills a worker in a step that the others have begun, so that they have the commit.
		die := func(name string, step uint64, others ...string) {
			mu.Lock()
			for _, o := range others {
				for at[o] < step {
					begun.Wait()
				}
			}
			mu.Unlock()
			f.hub.Kill(name)
		}
		f.onMicro = func(name string, s *elastic.Session, m int) {
			mu.Lock()
			computed++
			ofStep[name][s.Step()]++
			second := ofStep[name][s.Step()] == 2
			mu.Unlock()
			switch {
			case s.Step() >= 17 && s.Generation == 1 && name == "w1" && second:
				once[0].Do(func() { die("w1", s.Step(), "w0", "w2") })
			case s.Step() >= 60 && s.Generation == 3 && name == "w0" && m == 0: // rank 0
				once[2].Do(func() { die("w0", s.Step(), "w2", "late") })
			}
		}
		f.onStep = func(name string, s *elastic.Session) {
			mu.Lock()
			at[name] = s.Step()
			begun.Broadcast()
			mu.Unlock()
			if s.Step() >= 30 && name == "w2" {
				once[1].Do(func() { f.start("late") })
			}
			if s.Step() > 30 && s.Generation == 2 { // it should join before the end
				f.hub.Wait(t.Context(), time.Minute, func() bool { return f.hub.Planned || f.hub.Generation > 2 })
				f.hub.Wait(t.Context(), 50*time.Millisecond, func() bool { return f.hub.Generation > 2 })
			}
		}
		f.expect(3, one)
		if f.hub.Generation != 4 {
			t.Errorf("there were %d generations, want one after each kill and join", f.hub.Generation)
		}
		if extra := computed - micros; extra != 3 {
			t.Errorf("%d micro-batches were computed again, the dead had two and one", extra)
		}
	})
}

// expect runs a job of n workers, which end with the weights of one alone.
func (f *fleet) expect(n int, one *trainer) {
	f.t.Helper()
	for i := range n {
		f.start(fmt.Sprint("w", i))
	}
	f.wait.Wait()
	if len(f.hashes) == 0 {
		f.t.Fatal("nobody came to the end")
	}
	for i, h := range f.hashes {
		if h != one.hash() || f.results[i] != one.results {
			f.t.Errorf("a worker ends with %s and %+v, one alone with %s and %+v", h, f.results[i], one.hash(), one.results)
		}
	}
}
