// Package discovery decides whether a node is alive, how many slots it has, and whether it may get
// work.
//
//	agents ── join, leave ────────────────► ┌───────────┐
//	agents ── heartbeats (every replica) ─► │ liveness  │ ──► node.joined, suspected, recovered, lost, left, draining
//	clients ─ node.drain ─────────────────► │           │
//	registry ── job.failure-counted ──────► │           │ ──► node.quarantined, released
//	clients ─ node.quarantine, release ───► │           │
//	host list: a flag, file or script ────► │           │ ──► node.changed
//	                                        └───────────┘ ──► bucket nodes, one document per node
//
// States of a node: ready, suspected, lost, left (drawn in package liveness); draining is a
// separate attribute.
//
// The only facts that it reads are job.failure-counted. It is the only writer of the facts of the
// node family.
//
// Every replica receives all heartbeats and tracks them in memory; one that is disconnected, or has
// no proof that most brokers are there, suspects no node. Before a node is lost, its agent is
// pinged once directly. A lost node returns with the hello that its agent repeats every 10 s.
package discovery

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/discovery/liveness"
)

// replica is the state of one replica that is not stored.
type replica struct {
	ports   broker.Ports
	c       Config
	observe func(controller.Observation)

	mu      sync.Mutex
	tracker liveness.HeartbeatTracker
	several bool // there are several brokers, or it is not known yet

	list listing
}

// New returns one replica of discovery. It does no I/O. observe may be nil.
func New(ports broker.Ports, c Config, observe func(controller.Observation)) (*controller.Host[liveness.State], error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if observe == nil {
		observe = func(controller.Observation) {}
	}
	s := &replica{ports: ports, c: c, observe: observe, several: true, list: listing{c: c.HostConfig, nodes: map[ident.NodeID]events.NodeView{}}, tracker: liveness.HeartbeatTracker{
		SuspectAfter: c.SuspectAfter, LostAfter: c.LostAfter, Gap: c.SuspectAfter / 2, ReconnectWithin: c.ReconnectWithin, NeedsProof: true,
	}}
	if c.Hosts != "" {
		h, err := parseHostList(c.Hosts, c.PerHost)
		if err != nil {
			return nil, err
		}
		s.list.hosts = &h
	}
	return controller.New(controller.Options[liveness.State]{
		Service: events.ServiceDiscovery,
		Machine: liveness.Machine{KeepFor: c.KeepLost, Rules: c.Quarantine.rules(), Lease: c.lease()},
		Bucket:  events.BucketNodes,
		Ports:   ports,
		Consumers: []broker.Consumer{
			{Stream: events.StreamCommands, Durable: events.ServiceDiscovery, Subjects: []string{events.AllNodeCommands}},
			{Stream: events.StreamFacts, Durable: events.ServiceDiscovery + "-evt", Subjects: []string{events.FactSubject(events.JobFailureCounted{}.Type(), "*")}},
		},
		Requests: []controller.Request{
			{Verb: events.VerbJoin, Decode: s.greeted},
			{Verb: events.VerbLeave, Decode: checked[events.NodeLeave]},
		},
		Route: route,
		Memory: controller.Memory[liveness.State]{
			Recall: liveness.Machine{}.Recall, Family: []events.Family{events.FamilyNode},
			Over: func(liveness.State) bool { return true }, // the next hello says what was lost
		},
		Others:   s.others,
		Tasks:    []controller.Task{s.heartbeats, s.connection, s.ends, s.look, s.leases, s.majority, s.hosts},
		Watchers: []controller.Watcher{s.records},
		Reject:   reject,
		Observe:  observe,
	})
}

func route(in events.Input, _ func() []string, _ func(string) (liveness.State, bool)) []string {
	if !controller.Reads(events.ServiceDiscovery, in.Body) {
		return nil
	}
	if b, ok := in.Body.(events.JobFailureCounted); ok && b.Place.Node.Check() == nil {
		return []string{string(b.Place.Node)}
	}
	if n, ok := events.NodeOf(in.Body); ok {
		return []string{string(n)}
	}
	return nil
}

// others returns what this replica knows besides the record of a node.
func (s *replica) others(node string, known func() []string, state func(string) (liveness.State, bool)) any {
	return liveness.Known{
		Fleet: func() (f liveness.Fleet) {
			for _, n := range known() {
				if s, ok := state(n); ok && n != node {
					f.Add(s)
				}
			}
			return f
		},
		SeenSince: func(who liveness.Incarnation, silence time.Duration) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.tracker.SeenSince(who, silence, time.Now())
		},
	}
}

// reject returns the fact that tells a client why its command was refused.
func reject(e events.Event, why error) (events.Fact, bool) {
	f := events.NodeRejected{Command: e.ID, Code: errcode.Of(why), Errors: errcode.BoundedFieldErrors(why), Expired: controller.Expired(e, why)}
	f.Node, _ = events.NodeOf(e.Body)
	return events.Fact{Body: f, Entity: string(f.Node), Cause: e.ID, Trace: e.Trace}, true
}

// checked decodes a request and validates the node's name, which becomes a key.
func checked[B events.Body](data []byte) (events.Body, error) {
	b, err := bodies.Decode[B](data)
	if err != nil {
		return nil, err
	}
	n, _ := events.NodeOf(b)
	return b, n.Check()
}

// greeted decodes a hello and adds the host entry of its node and the number of nodes.
func (s *replica) greeted(data []byte) (events.Body, error) {
	b, err := checked[events.NodeHello](data)
	if h, ok := b.(events.NodeHello); ok && err == nil {
		s.list.greet(&h)
		s.mu.Lock()
		h.FleetSize, h.Several = s.tracker.FleetSize(), s.several
		h.Silence = s.tracker.SilentBefore(h, time.Now())
		s.mu.Unlock()
		b = h
	}
	return b, err
}

func (s *replica) hosts(ctx context.Context, emit controller.Emit) error {
	return s.list.run(ctx, emit, s.observe)
}

// records takes discovery's own documents, which show the nodes to be tracked.
func (s *replica) records(emit controller.Emit) (changed func(string, []byte), listed, ended func()) {
	return func(key string, value []byte) {
		if value == nil {
			s.list.forget(ident.NodeID(key))
			s.mu.Lock()
			defer s.mu.Unlock()
			s.tracker.Forget(ident.NodeID(key))
			return
		}
		v, err := document.View[events.NodeView](value)
		if err != nil {
			return // documents of a newer version are left to its replicas
		}
		s.mu.Lock()
		s.tracker.Update(v, time.Now())
		s.mu.Unlock()
		if b, changed := s.list.know(v); changed {
			emit(events.Input{Body: b})
		}
	}, nil, nil
}

func (s *replica) heartbeats(ctx context.Context, emit controller.Emit) error {
	return s.ports.Signals.Hear(ctx, events.AllHeartbeats, "", func(subject string, data []byte) {
		b, err := bodies.Decode[events.Heartbeat](data)
		if err != nil || b.CheckSubject(subject) != nil {
			return // a signal may be lost
		}
		s.mu.Lock()
		mend := s.tracker.Heartbeat(liveness.Incarnation{Node: b.Node, Incarnation: b.Incarnation}, b.Link, time.Now())
		s.mu.Unlock()
		if mend {
			emit(events.Input{Body: events.HeartbeatSeen{Heartbeat: b}})
		}
	}, nil)
}

// connection stops timeouts while this replica is disconnected.
func (s *replica) connection(ctx context.Context, _ controller.Emit) error {
	return s.ports.Signals.Watch(ctx, func(connected bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tracker.Connected(connected, time.Now())
	})
}

const (
	checkEvery = 100 * time.Millisecond
	pings      = 64 // at a time; a whole rack may fall silent
	askAgain   = 50 * time.Millisecond
)

// look reports silent nodes and pings those that have been silent for long.
func (s *replica) look(ctx context.Context, emit controller.Emit) error {
	return wait.Every(ctx, checkEvery, func(time.Time) error {
		s.mu.Lock()
		cuts := s.tracker.Disconnections(time.Now())
		suspect, ask := s.tracker.Check(time.Now())
		s.mu.Unlock()
		for _, cut := range cuts {
			emit(events.Input{Body: cut})
		}
		for _, who := range suspect {
			emit(events.Input{Body: events.HeartbeatMissed{Node: who.Node, Incarnation: who.Incarnation, Silence: spec.Duration(s.c.SuspectAfter)}})
		}
		if len(ask) == 0 {
			return nil
		}
		controller.Each(pings, ask, func(who liveness.Incarnation) { s.ping(ctx, who, emit) })
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tracker.Skip(time.Now()) // the gap was spent on pings
		return nil
	})
}

func (s *replica) ping(ctx context.Context, who liveness.Incarnation, emit controller.Emit) {
	call, cancel := context.WithTimeout(ctx, s.c.PingTimeout)
	defer cancel()
	data, err := s.ports.Calls.Call(call, events.AgentSubject(who.Node, events.VerbPing), []byte("{}"))
	for errors.Is(err, errcode.ErrUnavailable) && wait.Sleep(call, askAgain) { // no subscriber: the agent may be about to reconnect
		data, err = s.ports.Calls.Call(call, events.AgentSubject(who.Node, events.VerbPing), []byte("{}"))
	}
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		var pong events.Pong
		if pong, err = bodies.Decode[events.Pong](data); err == nil && pong.Incarnation == who.Incarnation {
			s.mu.Lock()
			mend := s.tracker.Observe(who, pong.Link, time.Now())
			s.mu.Unlock()
			if mend {
				emit(events.Input{Body: events.HeartbeatSeen{Heartbeat: events.Heartbeat{Node: who.Node, Incarnation: who.Incarnation, Link: pong.Link}}})
			}
			return
		}
	}
	s.mu.Lock()
	deaf, silent, since, nodes := s.tracker.Deaf(time.Now()), s.tracker.PingPending(who), s.tracker.Silence(who, time.Now()), s.tracker.FleetSize()
	unheard, several := s.tracker.Unheard(who), s.several
	s.mu.Unlock()
	if deaf || !silent || !s.hears(ctx) { // otherwise this replica was disconnected, or the agent was heard since
		return
	}
	emit(events.Input{Body: events.HeartbeatMissed{Node: who.Node, Incarnation: who.Incarnation, Failed: true, Silence: spec.Duration(since), Unheard: unheard, FleetSize: nodes, Several: several}})
}

// hearAgain is the pause before subscribing again to closed connections.
const hearAgain = time.Second

// ends receives the connections that the brokers see close. For what it misses heartbeats decide.
func (s *replica) ends(ctx context.Context, emit controller.Emit) error {
	reported := ""
	for ctx.Err() == nil {
		err := s.ports.Links.Ends(ctx, func(l broker.Link) {
			s.mu.Lock()
			cut, ok := s.tracker.ConnectionClosed(l, time.Now())
			s.mu.Unlock()
			if ok {
				emit(events.Input{Body: cut})
			}
		}, func() { reported = "" })
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errcode.ErrNotFound):
			s.report(errcode.Errorf(errcode.NotFound, "the system account is unavailable: heartbeats decide: %w", err))
			<-ctx.Done()
		default:
			if text := err.Error(); text != reported {
				reported = text
				s.report(errcode.Errorf(errcode.Of(err), "the ends of connections are not heard for now: heartbeats decide: %w", err))
			}
			wait.Sleep(ctx, hearAgain)
		}
	}
	return nil
}

func (s *replica) report(err error) {
	s.observe(controller.Observation{Service: events.ServiceDiscovery, Err: err})
}
