package agent_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/agent"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/spec"
)

// TestDiscoverySetsTheIntervals: for a large fleet it asks for fewer heartbeats and hellos than the
// agent would send, once it has a lease. One heartbeat more follows each welcome.
func TestDiscoverySetsTheIntervals(t *testing.T) {
	for name, c := range map[string]struct {
		welcome       events.NodeWelcome
		lease         bool
		beats, hellos int64 // in a minute
	}{
		"as it likes":     {events.NodeWelcome{}, true, 120 + 6, 6},
		"a large fleet":   {events.NodeWelcome{Heartbeat: spec.Duration(2 * time.Second), Hello: spec.Duration(20 * time.Second)}, true, 30 + 3, 3},
		"without a lease": {events.NodeWelcome{Heartbeat: spec.Duration(2 * time.Second), Hello: spec.Duration(20 * time.Second)}, false, 120 + 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				ports := memory.New().Ports()
				var all sync.WaitGroup
				var beats, hellos atomic.Int64
				all.Go(func() {
					_ = ports.Calls.Serve(ctx, events.RequestSubject(events.ServiceDiscovery, events.VerbJoin), "",
						func(context.Context, []byte) ([]byte, error) { hellos.Add(1); return bodies.Encode(c.welcome) })
				})
				all.Go(func() {
					_ = ports.Calls.Serve(ctx, events.RequestSubject(events.ServiceDiscovery, events.VerbRenew), "",
						func(context.Context, []byte) ([]byte, error) {
							if !c.lease {
								return nil, errcode.Errorf(errcode.Conflict, "not yet")
							}
							return bodies.Encode(events.LeaseGrant{Restart: spec.Duration(3 * time.Second), InPlace: spec.Duration(time.Minute)})
						})
				})
				all.Go(func() {
					_ = ports.Signals.Hear(ctx, events.AllHeartbeats, "", func(string, []byte) { beats.Add(1) }, nil)
				})
				synctest.Wait()
				a, err := agent.New(agent.Options{
					Node: "node-a", Slots: 1, Advertise: "10.0.0.1", StateDir: t.TempDir(), Ports: ports, Driver: newFakeDriver(), Incarnation: "01AGENT",
					Listen:    func(context.Context, string) (net.Listener, error) { return newPipes(), nil },
					ListenTCP: listenNowhere,
				})
				if err != nil {
					t.Fatal(err)
				}
				all.Go(func() {
					if err := a.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				})
				time.Sleep(10*time.Second + time.Millisecond) // the intervals are known with the first heartbeat at the latest
				b, h := beats.Load(), hellos.Load()
				time.Sleep(time.Minute)
				if b, h = beats.Load()-b, hellos.Load()-h; b != c.beats || h != c.hellos {
					t.Errorf("%d heartbeats and %d hellos in a minute, want %d and %d", b, h, c.beats, c.hellos)
				}
				stop()
				all.Wait()
			})
		})
	}
}
