package eventstest

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
)

// stateOf returns the state of a stream, once all of its copies are current.
func stateOf(t *testing.T, p broker.Ports, stream string) (s broker.StreamState) {
	t.Helper()
	eventually(t, "every copy of "+stream+" is current", func() bool {
		all := p.Brokers.Streams(timeout(t))
		i := slices.IndexFunc(all, func(s broker.StreamState) bool { return s.Stream == stream })
		if i < 0 {
			return false
		}
		s = all[i]
		return s.Unknown == "" && len(s.Replicas) > 0 && !slices.ContainsFunc(s.Replicas, func(r broker.ReplicaState) bool { return !r.Current || r.Offline || r.Lag > 0 })
	})
	return s
}

func brokersStreams(t *testing.T, h Harness) {
	before := stateOf(t, h.Ports, events.StreamFacts)
	entity := unique("brokers")
	for range 3 {
		put(t, h.Ports, entity, "a", "x")
	}
	after := stateOf(t, h.Ports, events.StreamFacts)
	if after.Messages != before.Messages+3 || after.Bytes <= before.Bytes || after.Refuses {
		t.Errorf("three messages later the stream is %+v, was %+v", after, before)
	}
	first := after.Replicas[0]
	if !first.Leader || first.Broker == "" || first.Broker != after.Leader || first.SeenMS != nil {
		t.Errorf("the first copy is %+v, and the leader %q", first, after.Leader)
	}
	for _, r := range after.Replicas[1:] {
		if r.Leader || r.Broker == "" || r.SeenMS == nil {
			t.Errorf("a further copy is %+v", r)
		}
	}
	var all []broker.StreamState
	eventually(t, "every stream is known", func() bool {
		all = h.Ports.Brokers.Streams(timeout(t))
		return !slices.ContainsFunc(all, func(s broker.StreamState) bool { return s.Unknown != "" })
	})
	var names []string
	connected := h.Ports.Brokers.Connected()
	for _, s := range all {
		names = append(names, s.Stream)
		if s.Stream == events.StreamCommands && !s.Refuses {
			t.Errorf("%+v", s)
		}
		if !slices.ContainsFunc(s.Replicas, func(r broker.ReplicaState) bool { return r.Broker == connected }) {
			t.Errorf("%s has copies %+v, and none at %q", s.Stream, s.Replicas, connected)
		}
	}
	if !slices.Equal(names, events.Streams()) {
		t.Errorf("the streams are %v, want %v", names, events.Streams())
	}
	closed := h.Client(t)
	closed.End()
	if closed.Ports.Brokers.Connected() != "" {
		t.Error("a process without a connection names a broker")
	}
	for _, s := range closed.Ports.Brokers.Streams(timeout(t)) {
		if s.Unknown == "" {
			t.Errorf("without a connection %s is known: %+v", s.Stream, s)
		}
	}
}

func brokersBacklog(t *testing.T, h Harness) {
	entity, durable := unique("backlog"), events.Services()[0].Durables()[2]
	const messages = 5
	for range messages {
		put(t, h.Ports, entity, "a", "x")
	}
	backlog := func() (c broker.ConsumerState) {
		for _, c = range stateOf(t, h.Ports, events.StreamFacts).Consumers {
			if c.Consumer == durable {
				return c
			}
		}
		return broker.ConsumerState{}
	}
	if c := backlog(); c.Consumer != "" {
		t.Errorf("a consumer that was never made is %+v", c)
	}
	var settle atomic.Bool
	stop := consume(t, h.Ports, durable, entity, short, func(d broker.Delivery) {
		if settle.Load() {
			d.Ack()
		}
	})
	eventually(t, "every message was delivered again, and is still to be handled", func() bool {
		c := backlog()
		return c.Service == events.Services()[0].Name && c.Unknown == "" && c.Backlog() == messages && c.AckPending == messages && c.Redelivered == messages
	})
	settle.Store(true)
	eventually(t, "nothing is left", func() bool { c := backlog(); return c.Backlog() == 0 && c.Redelivered == 0 })
	stop()
	put(t, h.Ports, entity, "a", "x")
	eventually(t, "what nobody reads waits", func() bool { return backlog().Backlog() == 1 })
}
