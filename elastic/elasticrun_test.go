package elastic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/elastictest"
	"github.com/regroup-io/regroup/elastic/samples"
	"github.com/regroup-io/regroup/internal/wait"
)

// TestAnElasticSamplerUnderKillsAndJoins: workers with batches of different sizes, one of which is
// killed and another comes in, count in their state how often each sample was trained on.
func TestAnElasticSamplerUnderKillsAndJoins(t *testing.T) {
	const count, epochs = 400, 2
	hub := elastictest.New(t, 3)
	var running sync.WaitGroup
	var once, twice sync.Once
	var start func(name string, size int)
	train := func(ctx context.Context, s *Session, name string, size int, e *samples.ElasticSampler, seen []int32) error {
		for e.Epoch() < epochs {
			switch {
			case s.Generation == 1 && s.Step() == 13 && name == "w1":
				once.Do(func() { hub.Kill("w1") })
			case s.Generation == 2 && s.Step() >= 20 && name == "w0":
				twice.Do(func() { start("late", 7) })
			}
			b := e.Next(size)
			counts := make([]int32, count)
			for _, i := range b.Indices {
				counts[i]++
			}
			if err := collective.Allreduce(ctx, s.Comm(), counts, collective.Sum); err != nil {
				return err
			}
			if err := s.Consume(ctx, b); err != nil {
				return err
			}
			for i, n := range counts {
				seen[i] += n
			}
			if err := e.Record(b); err != nil {
				return err
			}
			if e.Finished() {
				e.SetEpoch(e.Epoch() + 1)
			}
			if s.CommitDue(4) {
				if err := s.Commit(ctx); err != nil {
					return err
				}
			}
			wait.Sleep(ctx, time.Millisecond)
		}
		return nil
	}
	var mu sync.Mutex
	done := 0
	start = func(name string, size int) {
		e, seen := samples.NewElasticSampler(count, 5), make([]int32, count)
		state := NewState(nil)
		state.SetElasticSampler(e)
		Tensor(state, "seen", seen)
		ctx, transport := hub.Start(t, name)
		running.Go(func() {
			o := Options{Job: "j", Socket: hub.Socket, Token: name, Transport: transport}
			err := Run(ctx, o, state, func(ctx context.Context, s *Session) error { return train(ctx, s, name, size, e, seen) })
			hub.Ended(name, err)
			if errors.Is(err, elastictest.ErrKilled) {
				return
			}
			for i, n := range seen {
				if n != epochs {
					err = errors.Join(err, fmt.Errorf("sample %d was trained on %d times", i, n))
					break
				}
			}
			if err = errors.Join(err, samples.CheckLedger(state.Ledger())); err != nil || state.Cursor().Epoch != epochs {
				t.Errorf("%s: %v; ledger %+v", name, err, state.Ledger())
			}
			mu.Lock()
			defer mu.Unlock()
			done++
		})
	}
	for i, size := range []int{3, 5, 2} {
		start(fmt.Sprint("w", i), size)
	}
	running.Wait()
	if done != 3 || hub.Generation != 3 {
		t.Errorf("%d workers are done in generation %d, want 3 in 3", done, hub.Generation)
	}
}
