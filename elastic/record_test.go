package elastic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/regroup-io/regroup/elastic/elastictest"
	"github.com/regroup-io/regroup/elastic/samples"
)

// TestRanksRecordAtTheirOwnPace: three ranks record shares of unequal size in unequal numbers of
// steps; one is killed between a record and the commit. The ledger holds each sample once, and all
// are at the same step.
func TestRanksRecordAtTheirOwnPace(t *testing.T) {
	const count, epochs = 90, 4
	hub := elastictest.New(t, 3)
	var wait sync.WaitGroup
	var once sync.Once
	var mu sync.Mutex
	steps := map[uint64]bool{}
	for w := range 3 {
		name := fmt.Sprint("w", w)
		epoch := make([]int64, 1)
		state := NewState(samples.NewSampler(count, 1))
		state.Recording()
		Tensor(state, "epoch", epoch)
		ctx, transport := hub.Start(t, name)
		wait.Go(func() {
			err := Run(ctx, Options{Job: "j", Socket: hub.Socket, Token: name, Transport: transport}, state, func(ctx context.Context, s *Session) error {
				for epoch[0] < epochs {
					lo, hi := count*s.Rank/s.World, count*(s.Rank+1)/s.World
					for ; lo < hi; lo += s.Rank + 2 { // each with batches of its own
						var own []int
						for i := lo; i < min(hi, lo+s.Rank+2); i++ {
							own = append(own, i)
						}
						s.Record(uint64(epoch[0]), own)
					}
					if name == "w1" && epoch[0] == 2 {
						once.Do(func() { hub.Kill("w1") })
					}
					epoch[0]++
					if err := s.Commit(ctx); err != nil {
						return err
					}
				}
				return nil
			})
			hub.Ended(name, err)
			if errors.Is(err, elastictest.ErrKilled) {
				return
			}
			l := state.Ledger()
			if err = errors.Join(err, samples.CheckLedger(l)); err != nil || len(l.Epochs) != epochs || !l.Epochs[epochs-1].Done {
				t.Errorf("%s: %v, ledger %+v", name, err, l)
			}
			mu.Lock()
			defer mu.Unlock()
			steps[state.Step()] = true
		})
	}
	wait.Wait()
	if len(steps) != 1 {
		t.Errorf("the ranks end at steps %v", steps)
	}
}
