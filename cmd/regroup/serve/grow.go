package serve

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// Run runs the four services until ctx ends.
func (l *Local) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return Services(ctx, l.Process, l.Discovery, All()...) })
	g.Go(func() error { return l.grow(ctx) })
	return g.Wait()
}

const (
	growEvery = time.Second // how often the broker that assigns streams counts the others
	copies    = 3           // of everything, as soon as there are as many brokers
)

// grow has everything stored three times as soon as there are three brokers. It is never taken back: that there are fewer
// brokers for a while is what the copies are for.
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
