package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/agent"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/controller/controllertest"
	"github.com/regroup-io/regroup/services/discovery"
)

// outages is the ports' view of an outage, which a test sets.
type outages struct {
	broker.Links
	mu  sync.Mutex
	now func() broker.Outage

	clustered bool
}

func (o *outages) Outage() broker.Outage {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.now == nil {
		return broker.Outage{}
	}
	return o.now()
}

func (o *outages) Alone() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.clustered
}

// cluster makes the broker one of several.
func (o *outages) cluster() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clustered = true
}

func (o *outages) set(now func() broker.Outage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now = now
}

// TestProcessesEndWithTheLease: an agent with a process of a job that is restarted as a group, and
// a real discovery. The process ends when the lease does, and not before.
func TestProcessesEndWithTheLease(t *testing.T) {
	type lab struct {
		bus    *memory.Bus
		client *memory.Client
		links  *outages
		stop   func() // of discovery
	}
	for name, c := range map[string]struct {
		fault func(l lab)
		ends  time.Duration // after the fault, within half a second; 0 = not within a minute
	}{
		"no fault":                        {func(lab) {}, 0},
		"cut off":                         {func(l lab) { l.client.Disconnect() }, 3 * time.Second},
		"cut off for a short time":        {func(l lab) { l.client.Disconnect(); time.Sleep(700 * time.Millisecond); l.client.Connect() }, 0},
		"cut off until it counts as lost": {func(l lab) { l.client.Disconnect(); time.Sleep(2 * time.Second); l.client.Connect() }, 2 * time.Second},
		"the credentials are refused": {func(l lab) {
			l.client.Disconnect()
			l.links.set(func() broker.Outage { return broker.Outage{Denied: true} })
		}, 100 * time.Millisecond},
		"every broker is known to be stopped": {func(l lab) {
			l.bus.Disconnect()
			l.links.set(func() broker.Outage { return broker.Outage{Stopped: time.Now()} })
			time.Sleep(30 * time.Second)
			l.bus.Connect()
			l.links.set(nil)
		}, 0},
		"no replica of discovery runs":                                     {func(l lab) { l.stop() }, 0},
		"no replica of discovery runs, and one of several brokers answers": {func(l lab) { l.links.cluster(); l.stop() }, 3 * time.Second},
		"every broker is stopped for longer than the long lease": {func(l lab) {
			l.bus.Disconnect()
			l.links.set(func() broker.Outage { return broker.Outage{Stopped: time.Now()} })
		}, time.Minute + 3*time.Second},
		"a broker was stopped, and then nothing answers": {func(l lab) {
			l.bus.Disconnect()
			stopped := time.Now().Add(time.Second)
			l.links.set(func() broker.Outage { return broker.Outage{Stopped: stopped} })
		}, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bus := memory.New()
				d, err := discovery.New(bus.Ports(), discovery.DefaultConfig(), nil)
				if err != nil {
					t.Fatal(err)
				}
				stop := sync.OnceFunc(controllertest.Start(t, d.Run))
				l := lab{stop: stop, bus: bus, client: bus.Client()}
				ports := l.client.Ports()
				l.links = &outages{Links: ports.Links}
				ports.Links = l.links
				driver := newFakeDriver()
				a, err := agent.New(agent.Options{
					Node: "node-a", Slots: 1, Advertise: "10.0.0.1", StateDir: t.TempDir(), Ports: ports, Driver: driver, Incarnation: "01AGENT",
					Listen:    func(context.Context, string) (net.Listener, error) { return newPipes(), nil },
					ListenTCP: listenNowhere,
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				all.Go(func() {
					if err := a.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				})
				joined := make(chan ident.Incarnation, 1)
				all.Go(func() {
					_ = bus.Ports().Calls.Serve(ctx, events.RequestSubject(events.ServiceRendezvous, events.VerbJoins), "", func(_ context.Context, data []byte) ([]byte, error) {
						b, err := bodies.Decode[events.MemberJoins](data)
						if err == nil {
							joined <- b.Joins[0].Incarnation
						}
						return nil, errcode.Errorf(errcode.Conflict, "the next launch answers")
					})
				})
				time.Sleep(time.Second)
				launch(t, bus, 1, events.PhasePrepare, "")
				launch(t, bus, 2, events.PhaseRun, <-joined)
				time.Sleep(100 * time.Millisecond)
				if driver.running() != 1 {
					t.Fatalf("%d processes run, want one", driver.running())
				}
				fault := time.Now()
				all.Go(func() { c.fault(l) })
				for driver.running() == 1 && time.Since(fault) < 2*time.Minute {
					time.Sleep(10 * time.Millisecond)
				}
				took := time.Since(fault)
				switch {
				case c.ends == 0 && driver.running() == 0:
					t.Errorf("the process has ended after %s", took)
				case c.ends > 0 && (took < c.ends-600*time.Millisecond || took > c.ends+100*time.Millisecond):
					t.Errorf("the process has ended after %s, want %s", took, c.ends)
				}
				cancel()
				all.Wait()
				stop()
			})
		})
	}
}

// launch publishes a launch for node-a of a job that is restarted as a group, by hand.
func launch(t *testing.T, bus *memory.Bus, revision uint64, phase events.Phase, worker ident.Incarnation) {
	t.Helper()
	m := events.LaunchMember{Member: tables.Member{Place: ident.Place{Node: "node-a"}, Attempt: 1, Rank: -1, Incarnation: worker}}
	if phase == events.PhaseRun {
		m.Rank = 0
	}
	l := events.Launch{
		Job: job, Node: "node-a", Revision: revision, Phase: phase, Generation: 1, World: 2, Master: "10.0.0.1:7", Token: "tok",
		Spec:    spec.Job{Name: "mnist", Command: []string{"fake", "run=1h"}, Recovery: spec.RecoveryRestart},
		Members: []events.LaunchMember{m},
	}
	data, err := bodies.Encode(l)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bus.Ports().Log.Publish(t.Context(), broker.Message{Subject: events.LaunchSubject("node-a", job), ID: fmt.Sprint(revision), Data: data}); err != nil {
		t.Fatal(err)
	}
}
