package memory

import (
	"context"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
)

type brokers struct{ *Client }

// Connected implements broker.Brokers.
func (b brokers) Connected() string {
	b.bus.mu.Lock()
	defer b.bus.mu.Unlock()
	if b.down {
		return ""
	}
	return serverID
}

// Streams implements broker.Brokers. There is one broker, which has the only copy.
func (b brokers) Streams(ctx context.Context) []broker.StreamState {
	b.bus.mu.Lock()
	defer b.bus.mu.Unlock()
	err := b.ready(ctx)
	all := make([]broker.StreamState, 0, len(events.Streams()))
	for _, name := range events.Streams() {
		out := broker.StreamState{Stream: name, Replicas: []broker.ReplicaState{}, Consumers: []broker.ConsumerState{}}
		if err != nil {
			out.Unknown = err.Error()
			all = append(all, out)
			continue
		}
		out.Leader = serverID
		out.Replicas = append(out.Replicas, broker.ReplicaState{Broker: serverID, Leader: true, Current: true})
		if bucket, ok := strings.CutPrefix(name, events.BucketStream("")); ok {
			out.Refuses = true
			for _, e := range b.bus.buckets[bucket].entries {
				out.Messages++
				out.Bytes += uint64(len(e.value))
			}
		} else {
			s := b.bus.streams[name]
			out.Refuses = s.workQueue
			for _, m := range s.messages {
				out.Messages++
				out.Bytes += uint64(len(m.Subject) + len(m.Data))
			}
			out.Consumers = s.consumers()
		}
		all = append(all, out)
	}
	return all
}

// consumers returns the state of the consumers of services. The bus must be locked.
func (s *stream) consumers() []broker.ConsumerState {
	all := []broker.ConsumerState{}
	for _, c := range events.ServiceConsumers() {
		d := s.durables[c.Durable]
		if d == nil || c.Stream != s.name {
			continue
		}
		state := broker.ConsumerState{Consumer: c.Durable, Service: c.Service, AckPending: uint64(len(d.open))}
		for _, m := range s.messages[s.index(d.next):] {
			if events.MatchAny(d.subjects, m.Subject) {
				state.Pending++
			}
		}
		for _, o := range d.open {
			if o.attempt > 1 {
				state.Redelivered++
			}
		}
		all = append(all, state)
	}
	return all
}
