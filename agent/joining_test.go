package agent_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/agent"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/spec"
)

// crossing is an agent that registers itself for one job, with a rendezvous whose answers the test
// sets.
type crossing struct {
	t           *testing.T
	bus         *memory.Bus
	agent       *agent.Agent
	stop        context.CancelFunc
	ended       chan error
	mu          sync.Mutex
	received    []string // requests, in order
	memberships []string // memberships passed to the user
	slots       int      // offered in the hello
	answer      func() (events.NodeMembership, error)
	unserve     func()
}

func newCrossing(t *testing.T) *crossing {
	c := &crossing{t: t, bus: memory.New(), ended: make(chan error, 1)}
	ports := c.bus.Ports()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	serve := func(service, verb string, f func(data []byte) (events.Body, error)) {
		all.Go(func() {
			_ = ports.Calls.Serve(ctx, events.RequestSubject(service, verb), "", func(_ context.Context, data []byte) ([]byte, error) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.received = append(c.received, service+" "+verb)
				b, err := f(data)
				if err != nil {
					return nil, err
				}
				return bodies.Encode(b)
			})
		})
	}
	serve(events.ServiceDiscovery, events.VerbJoin, func(data []byte) (events.Body, error) {
		h, err := bodies.Decode[events.NodeHello](data)
		c.slots = h.Slots
		return events.NodeWelcome{}, err
	})
	serve(events.ServiceDiscovery, events.VerbRenew, func([]byte) (events.Body, error) { return longLease, nil })
	serve(events.ServiceDiscovery, events.VerbLeave, func([]byte) (events.Body, error) { return events.NodeWelcome{}, nil })
	membership := func([]byte) (events.Body, error) { return c.answer() }
	serve(events.ServiceRendezvous, events.VerbEnter, membership)
	serve(events.ServiceRendezvous, events.VerbExit, func([]byte) (events.Body, error) {
		return events.NodeMembership{Membership: events.MembershipLeft}, nil
	})
	c.unserve = func() { cancel(); all.Wait() }
	spec := spec.Job{
		Name: "mnist", Command: []string{"fake", "run=1h"}, Rendezvous: &spec.Rendezvous{Nodes: spec.NodeRange{Min: 2, Max: 4}, WorkersPerNode: 1},
	}.WithDefaults()
	pipes := newPipes()
	var err error
	c.agent, err = agent.New(agent.Options{
		Node: "node-a", Slots: 1, Advertise: "10.0.0.1", StateDir: t.TempDir(), Ports: ports, Driver: newFakeDriver(), Incarnation: "01AGENT",
		Listen:    func(context.Context, string) (net.Listener, error) { return pipes, nil },
		ListenTCP: listenNowhere,
		Join: &agent.Joining{Job: job, Spec: spec, OnChange: func(s events.NodeMembership) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.memberships = append(c.memberships, fmt.Sprintf("%s %d", s.Membership, s.Nodes))
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *crossing) run() {
	run, stop := context.WithCancel(context.Background())
	c.stop = stop
	go func() { c.ended <- c.agent.Run(run) }()
	synctest.Wait()
}

// ends waits until Run has returned.
func (c *crossing) ends() {
	c.t.Helper()
	select {
	case err := <-c.ended:
		if err != nil {
			c.t.Errorf("Run: %v", err)
		}
	case <-time.After(10 * time.Minute):
		c.t.Error("Run does not return")
	}
	c.stop()
	c.unserve()
}

func (c *crossing) says(s events.Membership, nodes int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = func() (events.NodeMembership, error) {
		return events.NodeMembership{Node: "node-a", Membership: s, RendezvousStatus: events.RendezvousStatus{Job: job, Nodes: nodes, Min: 2, Max: 4}}, err
	}
}

// offered is how many slots the agent has offered to the scheduler.
func (c *crossing) offered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slots
}

func (c *crossing) asked(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, h := range c.received {
		if h == what {
			n++
		}
	}
	return n
}

func (c *crossing) launch(revision uint64, phase events.Phase) {
	c.t.Helper()
	data, err := bodies.Encode(events.Launch{
		Job: job, Node: "node-a", Revision: revision, Phase: phase, Generation: 1, Spec: spec.Job{Name: "mnist", Command: []string{"fake"}},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.bus.Ports().Log.Publish(context.Background(), broker.Message{Subject: events.LaunchSubject("node-a", job), Data: data}); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

// TestCandidateWaitsForItsLaunch: it asks after its hello, offers no slots, does not poll, receives
// the state of the rendezvous, and ends with the job as soon as a launch stops it.
func TestCandidateWaitsForItsLaunch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrossing(t)
		c.says(events.MembershipParticipant, 1, nil)
		c.run()
		time.Sleep(9 * time.Second)
		if c.offered() != 0 || c.asked("rendezvous enter") != 1 {
			t.Errorf("offered %d slots and asked %d times in 9 s, want none and once", c.offered(), c.asked("rendezvous enter"))
		}
		data, err := bodies.Encode(events.RendezvousStatus{Job: job, Nodes: 2, Min: 2, Max: 4})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.bus.Ports().Signals.Send(events.RendezvousStatusSubject(job), data); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c.launch(1, events.PhasePrepare)
		c.says(events.MembershipOver, 2, nil)
		c.launch(2, events.PhaseStop)
		c.ends()
		if want := []string{"participant 1", "participant 2", "participant 1", "over 2"}; !slices.Equal(c.memberships, want) {
			t.Errorf("got %q, want %q; received %q", c.memberships, want, c.received)
		}
		if s, entered, err := c.agent.Membership(); s.Membership != events.MembershipOver || !entered || err != nil {
			t.Errorf("membership %+v, entered %t, %v", s, entered, err)
		}
	})
}

// TestRefusedCandidateGivesTheReason: after a different spec it does not retry; it does while the
// rendezvous is unavailable or does not know the job yet.
func TestRefusedCandidateGivesTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrossing(t)
		c.says("", 0, errcode.Errorf(errcode.NotFound, "not yet"))
		c.run()
		time.Sleep(5 * time.Second)
		if n := c.asked("rendezvous enter"); n < 3 {
			t.Errorf("asked %d times in 5 s, want more", n)
		}
		c.says("", 0, errcode.Errorf(errcode.Conflict, "env: is another"))
		c.ends()
		if _, entered, err := c.agent.Membership(); errcode.Of(err) != errcode.Conflict || entered {
			t.Errorf("refused with %v, entered %t; want the conflict", err, entered)
		}
	})
}

// TestInterruptedCandidateLeaves: it withdraws its node, waits until the job has released it, and
// only then says goodbye.
func TestInterruptedCandidateLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrossing(t)
		c.says(events.MembershipParticipant, 2, nil)
		c.run()
		c.launch(1, events.PhasePrepare)
		c.stop()
		time.Sleep(5 * time.Second)
		if c.asked("rendezvous exit") != 1 || c.asked("discovery leave") != 0 {
			t.Errorf("received %q, want an exit and no goodbye yet", c.received)
		}
		c.launch(2, events.PhaseStop)
		c.ends()
		if c.asked("discovery leave") != 1 {
			t.Errorf("received %q, want a goodbye", c.received)
		}
	})
}

// TestCandidateInterruptedTwiceDoesNotWait for the job to release it.
func TestCandidateInterruptedTwiceDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrossing(t)
		c.says(events.MembershipParticipant, 2, nil)
		c.run()
		c.launch(1, events.PhasePrepare)
		began := time.Now()
		c.stop()
		synctest.Wait()
		c.agent.Kill()
		c.ends()
		if took := time.Since(began); took > time.Second {
			t.Errorf("left after %s, want at once", took)
		}
	})
}
