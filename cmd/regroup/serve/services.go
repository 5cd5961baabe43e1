// Package serve runs the long-running parts of Regroup: one service, the broker, an agent, or all
// of them in one process.
package serve

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/discovery"
	"github.com/regroup-io/regroup/services/registry"
	"github.com/regroup-io/regroup/services/rendezvous"
	"github.com/regroup-io/regroup/services/scheduler"
)

type runner interface {
	Run(ctx context.Context) error
}

// build returns a service with its configuration from the environment.
func build(p *boot.Process, name string, d DiscoveryConfig) (runner, error) {
	switch name {
	case events.ServiceDiscovery:
		return discovery.New(p.Ports, d.Config, p.Observe)
	case events.ServiceScheduler:
		return scheduler.New(p.Ports, p.Observe)
	case events.ServiceRendezvous:
		return rendezvous.New(p.Ports, p.Observe)
	case events.ServiceRegistry:
		return registry.New(p.Ports, p.Observe)
	}
	return nil, fmt.Errorf("no service %q: it is one of %s", name, strings.Join(slices.Sorted(slices.Values(events.ServiceNames())), ", "))
}

// Services runs the named services in this process until ctx ends or one of them fails. d is for
// discovery.
func Services(ctx context.Context, p *boot.Process, d DiscoveryConfig, names ...string) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, name := range names {
		s, err := build(p, name, d)
		if err != nil {
			return err
		}
		g.Go(func() error {
			if err := s.Run(ctx); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	return g.Wait()
}
