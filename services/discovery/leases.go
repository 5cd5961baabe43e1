package discovery

import (
	"context"
	"errors"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/discovery/liveness"
)

// leases grants the leases of agents, from memory: see liveness.Lease. What it hears counts like a
// heartbeat.
func (s *replica) leases(ctx context.Context, emit controller.Emit) error {
	for ctx.Err() == nil {
		err := s.ports.Calls.Serve(ctx, events.RequestSubject(events.ServiceDiscovery, events.VerbRenew), events.ServiceDiscovery, func(_ context.Context, data []byte) ([]byte, error) {
			b, err := bodies.Decode[events.LeaseRenew](data)
			if err != nil {
				return nil, err
			}
			g, err := s.renew(b, time.Now(), emit)
			if err != nil {
				return nil, err
			}
			return bodies.Encode(g)
		})
		if err != nil && ctx.Err() == nil {
			s.report(errcode.Errorf(errcode.Of(err), "leases are not granted for now: %w", err))
			wait.Sleep(ctx, hearAgain)
		}
	}
	return nil
}

func (s *replica) renew(b events.LeaseRenew, now time.Time, emit controller.Emit) (events.LeaseGrant, error) {
	if b.Node == "" {
		return events.LeaseGrant{}, nil
	}
	s.mu.Lock()
	r := s.tracker.Renew(liveness.Incarnation{Node: b.Node, Incarnation: b.Incarnation}, b.Link, now)
	l := s.c.lease().ForFleet(s.tracker.FleetSize())
	if s.several {
		l = l.OnProof()
	}
	s.mu.Unlock()
	if r.Mend {
		emit(events.Input{Body: events.HeartbeatSeen{Heartbeat: events.Heartbeat{Node: b.Node, Incarnation: b.Incarnation, Link: b.Link}}})
	}
	if !r.Granted {
		return events.LeaseGrant{}, errcode.Errorf(errcode.Conflict, "node %s has no lease: it is not ready in discovery's record, as far as this replica knows, or no heartbeat of it is proven yet", b.Node)
	}
	if l.Restart <= r.Age {
		return events.LeaseGrant{}, errcode.Errorf(errcode.Unavailable, "most of the brokers have not answered this replica for %s: a lease of %s is over", r.Age.Round(time.Millisecond), l.Restart)
	}
	return events.LeaseGrant{Restart: spec.Duration(l.Restart - r.Age), InPlace: spec.Duration(l.InPlace - r.Age), TimesLost: r.TimesLost}, nil
}

// majority proves again and again that this replica is on the side of most brokers.
func (s *replica) majority(ctx context.Context, _ controller.Emit) error {
	for ctx.Err() == nil {
		err := s.ports.Links.Majority(ctx, events.BucketNodes, func(asked time.Time, alone bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.several, s.tracker.NeedsProof = !alone, !alone
			if !alone {
				s.tracker.Majority(asked)
			}
		})
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errcode.ErrNotFound):
			s.report(errcode.Errorf(errcode.NotFound, "leases are granted without a proof that most brokers are there: %w", err))
			s.mu.Lock()
			s.tracker.NeedsProof = false
			s.mu.Unlock()
			<-ctx.Done()
		default:
			s.report(errcode.Errorf(errcode.Of(err), "leases are not granted for now: %w", err))
			wait.Sleep(ctx, hearAgain)
		}
	}
	return nil
}

// hears proves that this replica receives what is sent to it: without that, the silence of an agent
// means nothing. Any replica may answer.
func (s *replica) hears(ctx context.Context) bool {
	call, cancel := context.WithTimeout(ctx, s.c.PingTimeout)
	defer cancel()
	data, err := bodies.Encode(events.LeaseRenew{})
	if err != nil {
		return false
	}
	_, err = s.ports.Calls.Call(call, events.RequestSubject(events.ServiceDiscovery, events.VerbRenew), data)
	return err == nil
}
