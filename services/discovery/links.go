package discovery

import (
	"context"
	"errors"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/controller"
)

// hearAgain is the pause before subscribing again to closed connections.
const hearAgain = time.Second

// ends receives the connections that the brokers see close. Without it, and for what it misses,
// heartbeats decide.
func (s *Service) ends(ctx context.Context, emit controller.Emit) error {
	reported := ""
	for ctx.Err() == nil {
		err := s.o.Ports.Links.Ends(ctx, func(l events.Link) {
			s.mu.Lock()
			cut, ok := s.ages.ConnectionClosed(l, time.Now())
			s.mu.Unlock()
			if ok {
				emit(events.Input{Body: cut})
			}
		}, func() { reported = "" })
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, events.ErrNotFound):
			s.report(events.Errorf(events.NotFound, "the system account is unavailable: heartbeats decide: %w", err))
			<-ctx.Done()
		default:
			if text := err.Error(); text != reported {
				reported = text
				s.report(events.Errorf(events.CodeOf(err), "the ends of connections are not heard for now: heartbeats decide: %w", err))
			}
			pause(ctx, hearAgain)
		}
	}
	return nil
}

// report reports an error that belongs to no entity.
func (s *Service) report(err error) {
	if s.o.Observe != nil {
		s.o.Observe(controller.Observation{Service: events.ServiceDiscovery, Err: err})
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
