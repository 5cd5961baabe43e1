package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/agent"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/services/controller/controllertest"
	"github.com/regroup-io/regroup/services/discovery"
)

// TestSecondAgentOfTheSameName waits until the first one has ended, because it has another state
// folder: it would end the workers of other people. When the first one comes back, it waits in
// turn: its workers have ended.
func TestSecondAgentOfTheSameName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		d, err := discovery.New(bus.Ports(), discovery.DefaultConfig(), nil)
		if err != nil {
			t.Fatal(err)
		}
		stop := controllertest.Start(t, d.Run)
		incarnations := 0
		begin := func(name string, client *memory.Client) func() (func(context.Context) error, error) {
			ports, dir := client.Ports(), t.TempDir()
			return func() (func(context.Context) error, error) {
				incarnations++
				a, err := agent.New(agent.Options{
					Node: "node-a", Slots: 1, Advertise: "10.0.0.1", StateDir: dir, Ports: ports, Driver: newFakeDriver(),
					Incarnation: ident.Incarnation(fmt.Sprintf("01-%02d-%s", incarnations, name)),
					Listen:      func(context.Context, string) (net.Listener, error) { return newPipes(), nil },
					ListenTCP:   listenNowhere,
				})
				if err != nil {
					return nil, err
				}
				return a.Run, nil
			}
		}
		var all sync.WaitGroup
		run := func(name string, client *memory.Client) context.CancelFunc {
			ctx, cancel := context.WithCancel(t.Context())
			f := begin(name, client)
			all.Go(func() {
				if err := agent.RunIncarnations(ctx, f); err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", name, err)
				}
			})
			return cancel
		}
		want := func(moment string, incarnation ident.Incarnation, state events.NodeState) {
			t.Helper()
			synctest.Wait()
			value, _, err := bus.Ports().Buckets.Bucket(events.BucketNodes).Load(t.Context(), "node-a")
			if err != nil {
				t.Fatal(moment, err)
			}
			v, err := document.View[events.NodeView](value)
			if err != nil || v.Incarnation != incarnation || v.State != state {
				t.Errorf("%s: %s is %s (%s), %v; want %s %s", moment, v.Incarnation, v.State, v.Reason, err, incarnation, state)
			}
		}
		client := bus.Client()
		first := run("first", client)
		time.Sleep(5 * time.Second)
		want("at first", "01-01-first", events.NodeStateReady)
		second := run("second", bus.Client())
		time.Sleep(time.Minute)
		want("with both", "01-01-first", events.NodeStateReady)
		client.Disconnect()
		time.Sleep(10 * time.Second)
		want("without the first", "01-02-second", events.NodeStateReady)
		client.Connect()
		time.Sleep(time.Minute)
		want("with the first again", "01-02-second", events.NodeStateReady)
		if incarnations != 3 {
			t.Errorf("%d incarnations, want three: the first one's second incarnation waits", incarnations)
		}
		second()
		time.Sleep(15 * time.Second)
		want("after the second", "01-03-first", events.NodeStateReady)
		first()
		synctest.Wait()
		want("at the end", "01-03-first", events.NodeStateLeft)
		all.Wait()
		stop()
	})
}

// TestANodeWithANewAddressJoinsAnew: when its connection comes back and its address is another
// machine's, the agent's next incarnation joins under the new one, without waiting until the old
// one is counted as lost.
func TestANodeWithANewAddressJoinsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		d, err := discovery.New(bus.Ports(), discovery.DefaultConfig(), nil)
		if err != nil {
			t.Fatal(err)
		}
		stop := controllertest.Start(t, d.Run)
		client, dir := bus.Client(), t.TempDir()
		var address atomic.Value // of the machine
		address.Store("10.0.0.1")
		incarnations := 0
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			err := agent.RunIncarnations(ctx, func() (func(context.Context) error, error) {
				incarnations++
				own := address.Load().(string) //nolint:forcetypeassert // it has no other
				a, err := agent.New(agent.Options{
					Node: "node-a", Slots: 1, Advertise: own, StateDir: dir, Ports: client.Ports(), Driver: newFakeDriver(),
					Incarnation: ident.Incarnation(fmt.Sprintf("01-%02d", incarnations)),
					Reachable: func() error {
						if now := address.Load(); now != own {
							return fmt.Errorf("it was %s, and is %s now", own, now)
						}
						return nil
					},
					Listen:    func(context.Context, string) (net.Listener, error) { return newPipes(), nil },
					ListenTCP: listenNowhere,
				})
				if err != nil {
					return nil, err
				}
				return a.Run, nil
			})
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		node := func() events.NodeView {
			t.Helper()
			synctest.Wait()
			value, _, err := bus.Ports().Buckets.Bucket(events.BucketNodes).Load(t.Context(), "node-a")
			if err != nil {
				t.Fatal(err)
			}
			v, err := document.View[events.NodeView](value)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		again := func() {
			client.Disconnect()
			time.Sleep(100 * time.Millisecond)
			client.Connect()
			time.Sleep(time.Second)
		}
		time.Sleep(5 * time.Second)
		again()
		if v := node(); v.Address != "10.0.0.1" || v.State != events.NodeStateReady || incarnations != 1 {
			t.Errorf("with the same address: %s %s, %d incarnations", v.Address, v.State, incarnations)
		}
		address.Store("10.0.0.2")
		again()
		if v := node(); v.Address != "10.0.0.2" || v.State != events.NodeStateReady || v.Incarnation != "01-02" {
			t.Errorf("with another address: %s %s, incarnation %s", v.Address, v.State, v.Incarnation)
		}
		cancel()
		all.Wait()
		stop()
	})
}

// TestTwoAgentsDoNotShareAStateDirectory: the second would kill the first one's workers as
// leftovers.
func TestTwoAgentsDoNotShareAStateDirectory(t *testing.T) {
	p := playedDiscovery(t)
	dir := t.TempDir()
	newAgent := func() *agent.Agent {
		a, err := agent.New(agent.Options{Node: "node-a", Slots: 1, Advertise: "127.0.0.1", StateDir: dir, Ports: p.ports, Driver: newFakeDriver()})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := newAgent()
	ended := inBackground(ctx, first)
	for deadline := time.Now().Add(20 * time.Second); ; {
		if _, err := os.Stat(first.Socket()); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the first does not run")
		}
		runtime.Gosched()
	}
	if err := newAgent().Run(canceled(t)); !errors.Is(err, errcode.ErrConflict) {
		t.Errorf("the second runs too: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := newAgent().Run(canceled(t)); err != nil {
		t.Errorf("it does not run after the first: %v", err)
	}
}

func inBackground(ctx context.Context, a *agent.Agent) chan error {
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	return ended
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
