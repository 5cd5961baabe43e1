package discovery

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/discovery/liveness"
)

// Options are the dependencies of a replica.
type Options struct {
	Ports    events.Ports
	Config   Config
	Instance string // name of this replica, for logs
	Observe  func(controller.Observation)
}

// Service is one replica of discovery.
type Service struct {
	o    Options
	host *controller.Host[liveness.State]

	mu   sync.Mutex
	ages liveness.HeartbeatTracker

	list listing
}

// New validates the options. It does no I/O.
func New(o Options) (*Service, error) {
	if err := o.Config.Validate(); err != nil {
		return nil, err
	}
	s := &Service{o: o, list: listing{c: o.Config.HostConfig}, ages: liveness.HeartbeatTracker{
		SuspectAfter: o.Config.SuspectAfter,
		LostAfter:    o.Config.LostAfter,
		Gap:          o.Config.SuspectAfter / 2,

		ReconnectWithin: o.Config.ReconnectWithin,
	}}
	if o.Config.Hosts != "" {
		h, err := ParseHostList(o.Config.Hosts, o.Config.PerHost)
		if err != nil {
			return nil, err
		}
		s.list.hosts = &h
	}
	var err error
	s.host, err = controller.New(controller.Options[liveness.State]{
		Service: events.ServiceDiscovery,
		Machine: liveness.Machine{KeepFor: o.Config.KeepGone, Rules: o.Config.Quarantine.rules()},
		Bucket:  events.BucketNodes,
		Ports:   o.Ports,
		Consumers: []events.Consumer{
			{Stream: events.StreamCommands, Durable: events.ServiceDiscovery, Subjects: []string{events.AllNodeCommands}},
			{Stream: events.StreamFacts, Durable: events.ServiceDiscovery + "-evt", Subjects: []string{events.FactSubject(events.JobFailureCounted{}.Type(), "*")}},
		},
		Requests: []controller.Request{
			{Verb: events.VerbJoin, Decode: s.greeted},
			{Verb: events.VerbLeave, Decode: checked(func(b events.NodeLeave) events.NodeID { return b.Node })},
		},
		Route:   route,
		Tasks:   []func(context.Context, controller.Emit) error{s.records, s.heartbeats, s.connection, s.ends, s.look, s.hosts},
		Reject:  reject,
		Observe: o.Observe,
	})
	return s, err
}

// ControllerOptions returns the options of the service's controller. The simulation runs it in
// virtual time.
func (s *Service) ControllerOptions() controller.Options[liveness.State] { return s.host.Options() }

// Run serves until ctx ends, which is no error.
func (s *Service) Run(ctx context.Context) error { return s.host.Run(ctx) }

// route returns the node that an input is about.
func route(in events.Input, _ func() []string, _ func(string) (liveness.State, bool)) []string {
	switch b := in.Body.(type) {
	case events.NodeHello:
		return []string{string(b.Node)}
	case events.NodeLeave:
		return []string{string(b.Node)}
	case events.NodeDrain:
		return []string{string(b.Node)}
	case events.NodeQuarantine:
		return []string{string(b.Node)}
	case events.NodeRelease:
		return []string{string(b.Node)}
	case events.JobFailureCounted:
		return one(b.Place.Node)
	case events.HostEntry:
		return []string{string(b.Node)}
	case events.HeartbeatMissed:
		return []string{string(b.Node)}
	case events.HeartbeatSeen:
		return []string{string(b.Node)}
	case events.Disconnected:
		return []string{string(b.Node)}
	}
	return nil
}

// one routes to one node, or to none if its name is no valid key.
func one(n events.NodeID) []string {
	if n.Check() != nil {
		return nil
	}
	return []string{string(n)}
}

// reject returns the fact that tells a client why its command was refused.
func reject(e events.Event, why error) (events.Fact, bool) {
	f := events.NodeRejected{Command: e.ID, Code: events.CodeOf(why), Errors: events.BoundedFieldErrors(why), Expired: controller.Expired(e, why)}
	switch b := e.Body.(type) {
	case events.NodeDrain:
		f.Node = b.Node
	case events.NodeQuarantine:
		f.Node = b.Node
	case events.NodeRelease:
		f.Node = b.Node
	}
	return events.Fact{Body: f, Entity: string(f.Node), Cause: e.ID, Trace: e.Trace}, true
}

// checked decodes a request and validates the node's name, which becomes a key and part of a
// subject.
func checked[B events.Body](node func(B) events.NodeID) func([]byte) (events.Body, error) {
	return func(data []byte) (events.Body, error) {
		b, err := events.DecodeBody[B](data)
		if err != nil {
			return nil, err
		}
		return b, node(b).Check()
	}
}

// greeted decodes a hello and adds the host entry of its node and the number of nodes.
func (s *Service) greeted(data []byte) (events.Body, error) {
	b, err := checked(func(b events.NodeHello) events.NodeID { return b.Node })(data)
	if h, ok := b.(events.NodeHello); ok && err == nil {
		s.list.greet(&h)
		s.mu.Lock()
		h.FleetSize = s.ages.FleetSize()
		s.mu.Unlock()
		b = h
	}
	return b, err
}

// hosts follows the host list.
func (s *Service) hosts(ctx context.Context, emit controller.Emit) error {
	return s.list.run(ctx, emit, s.o.Observe)
}

// records watches discovery's own documents, which show the nodes to be tracked.
func (s *Service) records(ctx context.Context, emit controller.Emit) error {
	return s.o.Ports.Buckets.Bucket(events.BucketNodes).Watch(ctx, func(key string, value []byte, _ uint64) {
		if value == nil {
			s.list.forget(events.NodeID(key))
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ages.Forget(events.NodeID(key))
			return
		}
		v, err := document.View[events.NodeView](value)
		if err != nil {
			return // documents of a newer version are left to its replicas
		}
		s.mu.Lock()
		s.ages.Update(v, time.Now())
		s.mu.Unlock()
		if b, changed := s.list.know(v); changed {
			emit(events.Input{Body: b})
		}
	}, nil)
}

// heartbeats receives the heartbeats of all agents.
func (s *Service) heartbeats(ctx context.Context, emit controller.Emit) error {
	return s.o.Ports.Signals.Hear(ctx, events.AllHeartbeats, "", func(_ string, data []byte) {
		b, err := events.DecodeBody[events.Heartbeat](data)
		if err != nil {
			return // a signal may be lost
		}
		s.mu.Lock()
		mend := s.ages.Observe(liveness.Incarnation{Node: b.Node, Incarnation: b.Incarnation}, b.Link, time.Now())
		s.mu.Unlock()
		if mend {
			emit(events.Input{Body: events.HeartbeatSeen{Heartbeat: b}})
		}
	}, nil)
}

// connection stops timeouts while this replica is disconnected.
func (s *Service) connection(ctx context.Context, _ controller.Emit) error {
	return s.o.Ports.Signals.Watch(ctx, func(connected bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ages.Connected(connected, time.Now())
	})
}

const (
	lookEvery = 100 * time.Millisecond
	pings     = 64 // at a time; a whole rack may fall silent
	askAgain  = 50 * time.Millisecond
)

// look reports silent nodes and pings those that have been silent for long.
func (s *Service) look(ctx context.Context, emit controller.Emit) error {
	return controller.Every(ctx, lookEvery, func(time.Time) error {
		s.mu.Lock()
		cuts := s.ages.Disconnections(time.Now())
		suspect, ask := s.ages.Check(time.Now())
		s.mu.Unlock()
		for _, cut := range cuts {
			emit(events.Input{Body: cut})
		}
		for _, who := range suspect {
			emit(silence(who, false))
		}
		if len(ask) == 0 {
			return nil
		}
		controller.Each(pings, ask, func(who liveness.Incarnation) { s.ping(ctx, who, emit) })
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ages.Skip(time.Now()) // the gap was spent on pings
		return nil
	})
}

// ping pings an agent directly, once.
func (s *Service) ping(ctx context.Context, who liveness.Incarnation, emit controller.Emit) {
	call, cancel := context.WithTimeout(ctx, s.o.Config.PingTimeout)
	defer cancel()
	data, err := s.o.Ports.Calls.Call(call, events.AgentSubject(who.Node, events.VerbPing), []byte("{}"))
	for errors.Is(err, events.ErrUnavailable) && pause(call, askAgain) { // no subscriber: the agent may be about to reconnect
		data, err = s.o.Ports.Calls.Call(call, events.AgentSubject(who.Node, events.VerbPing), []byte("{}"))
	}
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		var pong events.Pong
		if pong, err = events.DecodeBody[events.Pong](data); err == nil && pong.Incarnation == who.Incarnation {
			s.mu.Lock()
			mend := s.ages.Observe(who, pong.Link, time.Now())
			s.mu.Unlock()
			if mend {
				emit(events.Input{Body: events.HeartbeatSeen{Heartbeat: events.Heartbeat{Node: who.Node, Incarnation: who.Incarnation, Link: pong.Link}}})
			}
			return
		}
	}
	s.mu.Lock()
	deaf, silent := s.ages.Paused(), s.ages.PingPending(who)
	s.mu.Unlock()
	if !deaf && silent { // otherwise this replica was disconnected, or the agent was heard since
		emit(silence(who, true))
	}
}

func silence(who liveness.Incarnation, failed bool) events.Input {
	return events.Input{Body: events.HeartbeatMissed{Node: who.Node, Incarnation: who.Incarnation, Failed: failed}}
}
