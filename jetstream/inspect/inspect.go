// Package inspect asks the servers about the streams: which of them leads each, how far the others
// are behind, and what the services have still to handle. It is for people; nothing is decided on
// the answers.
package inspect

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	js "github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
)

// Limit limits Streams: a stream without a leader does not answer.
const Limit = 2 * time.Second

// Asker sends the requests. The leader of the stream, or of the consumer, answers.
type Asker interface {
	StreamInfo(ctx context.Context, stream string) (*js.StreamInfo, error)
	ConsumerInfo(ctx context.Context, stream, consumer string) (*js.ConsumerInfo, error)
}

// Streams asks about all streams at once, and about the consumers of the services.
func Streams(ctx context.Context, ask Asker) []broker.StreamState {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	names := events.Streams()
	all := make([]broker.StreamState, len(names))
	var g errgroup.Group
	for i, name := range names {
		g.Go(func() error {
			all[i] = stream(ctx, ask, name)
			return nil
		})
	}
	_ = g.Wait() // no function returns an error
	return all
}

func stream(ctx context.Context, ask Asker, name string) broker.StreamState {
	s := broker.StreamState{Stream: name, Replicas: []broker.ReplicaState{}, Consumers: []broker.ConsumerState{}}
	info, err := ask.StreamInfo(ctx, name)
	if err != nil {
		s.Unknown = err.Error()
		return s
	}
	s.Messages, s.Bytes = info.State.Msgs, info.State.Bytes
	s.MaxBytes, s.Refuses = uint64(max(0, info.Config.MaxBytes)), info.Config.Discard == js.DiscardNew
	if c := info.Cluster; c != nil && c.Leader != "" {
		s.Leader = c.Leader
		s.Replicas = append(s.Replicas, broker.ReplicaState{Broker: c.Leader, Leader: true, Current: true})
		for _, r := range c.Replicas {
			s.Replicas = append(s.Replicas, replica(r))
		}
		slices.SortStableFunc(s.Replicas[1:], func(a, b broker.ReplicaState) int { return cmp.Compare(a.Broker, b.Broker) })
	}
	if info.State.Consumers > 0 {
		s.Consumers = consumers(ctx, ask, name)
	}
	return s
}

// nameless begins what a server says instead of the name of a peer that it has not heard since its
// own start; the peer's id follows.
const nameless = "Server name unknown at this time "

func replica(r *js.PeerInfo) broker.ReplicaState {
	s := broker.ReplicaState{Broker: r.Name, Current: r.Current, Offline: r.Offline, Lag: r.Lag}
	if id, ok := strings.CutPrefix(r.Name, nameless); ok {
		s.Broker = "unknown " + id
	}
	// A server that was never heard is 0 too, and not current.
	if r.Active > 0 || r.Current {
		ms := float64(r.Active) / float64(time.Millisecond)
		s.SeenMS = &ms
	}
	return s
}

// Durables names the consumers that services may have on the stream; the numbers are not known.
func Durables(stream string) (all []broker.ConsumerState) {
	for _, c := range events.ServiceConsumers() {
		if c.Stream == stream {
			all = append(all, broker.ConsumerState{Consumer: c.Durable, Service: c.Service})
		}
	}
	return all
}

// consumers asks about every consumer that a service may have on the stream, all at once.
func consumers(ctx context.Context, ask Asker, stream string) []broker.ConsumerState {
	all := Durables(stream)
	absent := make([]bool, len(all))
	var g errgroup.Group
	for i := range all {
		g.Go(func() error {
			c := &all[i]
			info, err := ask.ConsumerInfo(ctx, stream, c.Consumer)
			switch {
			case errors.Is(err, js.ErrConsumerNotFound):
				absent[i] = true
			case err != nil:
				c.Unknown = err.Error()
			default:
				c.Pending, c.AckPending, c.Redelivered = info.NumPending, uint64(max(0, info.NumAckPending)), uint64(max(0, info.NumRedelivered))
			}
			return nil
		})
	}
	_ = g.Wait() // no function returns an error
	found := []broker.ConsumerState{}
	for i, c := range all {
		if !absent[i] {
			found = append(found, c)
		}
	}
	return found
}
