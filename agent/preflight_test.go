package agent_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/agent"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/figures"
	"github.com/regroup-io/regroup/events/memory"
)

// TestFiguresComeWithTheFirstHello: until the GPUs are measured the node is unknown to discovery,
// and an agent that is stopped meanwhile says no goodbye.
func TestFiguresComeWithTheFirstHello(t *testing.T) {
	for name, stopAfter := range map[string]time.Duration{"measured": 20 * time.Second, "stopped": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				serving, end := context.WithCancel(context.Background())
				ports := memory.New().Ports()
				var all, servers sync.WaitGroup
				var mu sync.Mutex
				var hellos []events.NodeHello
				byes := 0
				serve := func(verb string, f func([]byte)) {
					servers.Go(func() {
						_ = ports.Calls.Serve(serving, events.RequestSubject(events.ServiceDiscovery, verb), "", func(_ context.Context, d []byte) ([]byte, error) {
							mu.Lock()
							defer mu.Unlock()
							f(d)
							return bodies.Encode(events.NodeWelcome{})
						})
					})
				}
				serve(events.VerbJoin, func(d []byte) {
					h, err := bodies.Decode[events.NodeHello](d)
					if err != nil {
						t.Error(err)
					}
					hellos = append(hellos, h)
				})
				serve(events.VerbLeave, func([]byte) { byes++ })
				a, err := agent.New(agent.Options{
					Node: "node-a", Slots: 1, GPUs: []devices.GPU{{ID: "GPU-a"}}, Advertise: "10.0.0.1", StateDir: t.TempDir(), Ports: ports, Driver: newFakeDriver(), Incarnation: "01AGENT",
					Listen:    func(context.Context, string) (net.Listener, error) { return newPipes(), nil },
					ListenTCP: listenNowhere,
					Preflight: func(ctx context.Context) figures.Preflight {
						select {
						case <-time.After(10 * time.Second):
						case <-ctx.Done():
						}
						return figures.Preflight{GPUs: []figures.GPU{{ID: "GPU-a", MatmulTFLOPS: 650}}}
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				all.Go(func() {
					if err := a.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				})
				time.Sleep(min(stopAfter, 9*time.Second))
				mu.Lock()
				if len(hellos) > 0 {
					t.Errorf("hello before the figures: %+v", hellos)
				}
				mu.Unlock()
				time.Sleep(stopAfter - min(stopAfter, 9*time.Second))
				stop()
				all.Wait()
				end()
				servers.Wait()
				if name == "stopped" {
					if len(hellos) > 0 || byes > 0 {
						t.Errorf("%d hellos and %d goodbyes of an agent that was stopped before", len(hellos), byes)
					}
					return
				}
				if len(hellos) == 0 || hellos[0].Preflight == nil || hellos[0].Preflight.GPUs[0].MatmulTFLOPS != 650 || byes != 1 {
					t.Errorf("%+v, %d goodbyes", hellos, byes)
				}
			})
		})
	}
}
