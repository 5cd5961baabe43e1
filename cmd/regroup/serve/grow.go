package serve

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/jetstream/server"
)

// Run runs the four services until ctx ends.
func (l *Local) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return Services(ctx, l.Process, l.Discovery, events.ServiceNames()...) })
	g.Go(func() error { return l.grow(ctx) })
	g.Go(func() error { return guard(ctx, l.server, l.Process.Logger) })
	return g.Wait()
}

// During runs the services while fn runs, also after the end of ctx. When one of them fails, the
// context of fn ends.
func (l *Local) During(ctx context.Context, fn func(context.Context) error) error {
	services, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, failed := errgroup.WithContext(services)
	g.Go(func() error { return l.Run(failed) })
	g.Go(func() error {
		defer stop()
		inner, end := context.WithCancelCause(ctx)
		defer end(nil)
		defer context.AfterFunc(failed, func() { end(context.Cause(failed)) })()
		return fn(inner)
	})
	return g.Wait()
}

const guardEvery = time.Second

// guard reports when a broker cannot store, and makes it resume.
func guard(ctx context.Context, s *server.Server, log *slog.Logger) error {
	reason := ""
	return wait.Every(ctx, guardEvery, func(time.Time) error {
		err := s.Stores()
		switch {
		case err != nil && err.Error() != reason:
			reason = err.Error()
			log.Error("the broker stores nothing; what runs trains on", "reason", reason)
		case err == nil && reason != "":
			reason = ""
			log.Info("the broker stores again")
		}
		return nil
	})
}

const (
	growEvery = time.Second // how often the meta leader counts the other brokers
	copies    = 3           // replicas of all streams, as soon as there are as many brokers
)

// grow replicates all streams three times as soon as there are three brokers. It never reduces the
// replicas: they are there for the time with fewer brokers.
func (l *Local) grow(ctx context.Context) error {
	asked, reason := false, ""
	return wait.Every(ctx, growEvery, func(time.Time) error {
		peers := l.server.Peers()
		if len(peers) < copies {
			return nil
		}
		err := error(nil)
		if !asked {
			err = l.Process.Conn.EnsureAtLeast(ctx, copies)
			asked = err == nil
		}
		n := 0
		if err == nil {
			n, err = l.Process.Conn.Copies(ctx)
		}
		switch {
		case err == nil && n >= copies:
			l.Process.Logger.Info("everything is stored three times", "brokers", peers)
			<-ctx.Done()
		case err != nil && err.Error() != reason && ctx.Err() == nil:
			reason = err.Error()
			l.Process.Logger.Warn("not everything is stored three times yet", "reason", reason)
		}
		return nil
	})
}
