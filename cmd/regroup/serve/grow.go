package serve

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/jetstream"
)

// Run runs the four services until ctx ends.
func (l *Local) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return Services(ctx, l.Process, l.Discovery, All()...) })
	g.Go(func() error { return l.grow(ctx) })
	g.Go(func() error { return guard(ctx, l.server, l.Process.Logger) })
	return g.Wait()
}

// guardEvery is how often a broker's disk is looked at.
const guardEvery = time.Second

// guard says when a broker stores nothing, and sees to it that it begins again.
func guard(ctx context.Context, s *jetstream.Server, log *slog.Logger) error {
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := s.Stores()
		switch {
		case err != nil && err.Error() != said:
			said = err.Error()
			log.Error("the broker stores nothing; what runs trains on", "reason", said)
		case err == nil && said != "":
			said = ""
			log.Info("the broker stores again")
		}
	}
}

const (
	growEvery = time.Second // how often the broker that assigns streams counts the others
	copies    = 3           // of everything, as soon as there are as many brokers
)

// grow has everything stored three times as soon as there are three brokers. It is never taken
// back: that there are fewer brokers for a while is what the copies are for.
func (l *Local) grow(ctx context.Context) error {
	tick := time.NewTicker(growEvery)
	defer tick.Stop()
	asked, said := false, ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		peers := l.server.Peers()
		if len(peers) < copies {
			continue
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
			return nil
		case err != nil && err.Error() != said && ctx.Err() == nil:
			said = err.Error()
			l.Process.Logger.Warn("not everything is stored three times yet", "reason", said)
		}
	}
}
