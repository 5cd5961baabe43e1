package agent_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/spec"
)

// TestJoinsGoToTheReplicaOfTheLaunch, and to any other if that one has ended or does not answer.
func TestJoinsGoToTheReplicaOfTheLaunch(t *testing.T) {
	answer := func() ([]byte, error) {
		return bodies.Encode(events.MemberAnswers{Answers: []events.MemberAnswer{{MemberWaiting: events.MemberWaiting{Job: job, Proposed: 1}}}})
	}
	for name, c := range map[string]struct {
		replica     func(context.Context) ([]byte, error) // nil = it has ended
		direct, any int                                   // requests
		within      time.Duration
		patience    time.Duration
	}{
		"it answers":                  {func(context.Context) ([]byte, error) { return answer() }, 1, 0, time.Millisecond, 0},
		"it has ended":                {nil, 0, 1, time.Millisecond, 0},
		"it stands still":             {func(ctx context.Context) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }, 1, 1, time.Second, 0},
		"it is slow in a large fleet": {func(context.Context) ([]byte, error) { time.Sleep(4 * time.Second); return answer() }, 1, 0, 4500 * time.Millisecond, 5 * time.Second},
		"it takes too long":           {func(context.Context) ([]byte, error) { time.Sleep(6 * time.Second); return answer() }, 1, 1, 5 * time.Second, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.mu.Lock()
				w.welcome.Patience = spec.Duration(c.patience)
				w.mu.Unlock()
				time.Sleep(10*time.Second + time.Millisecond) // the next hello
				ctx, stop := context.WithCancel(context.Background())
				var all sync.WaitGroup
				direct := 0
				if c.replica != nil {
					all.Go(func() {
						_ = w.bus.Ports().Calls.Serve(ctx, events.ReplicaSubject(events.ServiceRendezvous, events.VerbJoins, "R1"), "",
							func(call context.Context, _ []byte) ([]byte, error) { direct++; return c.replica(call) })
					})
					synctest.Wait()
				}
				w.launch(events.Launch{
					Revision: 1, Phase: events.PhasePrepare, Generation: 1, Via: "R1", Spec: spec.Job{Command: []string{"fake", "run=5s"}},
					Members: []events.LaunchMember{member(0, -1, "")},
				})
				time.Sleep(c.within + 10*time.Millisecond)
				synctest.Wait()
				w.mu.Lock()
				asked := len(w.asked)
				w.mu.Unlock()
				if direct != c.direct || asked != c.any {
					t.Errorf("%d requests to the replica and %d to any, want %d and %d", direct, asked, c.direct, c.any)
				}
				w.wait()
				stop()
				all.Wait()
			})
		})
	}
}
