// Package serve runs the long-running parts of Regroup: one service, the broker, an agent, or all
// of them in one process.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/services/discovery"
	"github.com/regroup-io/regroup/services/registry"
	"github.com/regroup-io/regroup/services/rendezvous"
	"github.com/regroup-io/regroup/services/scheduler"
)

type runner interface {
	Run(ctx context.Context) error
}

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

// DiscoveryConfig is the configuration of discovery from REGROUP_DISCOVERY_* variables.
type DiscoveryConfig struct{ discovery.Config }

// LoadDiscovery reads the environment.
func LoadDiscovery() (DiscoveryConfig, error) {
	d := DiscoveryConfig{discovery.DefaultConfig()}
	return d, boot.Section("DISCOVERY", &d.Config)
}

// HostFlags adds the flags that select the usable hosts. Their names are Horovod's.
func (d *DiscoveryConfig) HostFlags(fs *pflag.FlagSet) { boot.Flags(fs, "DISCOVERY", &d.Config) }

// Check queries the host source once, so that a user at a terminal sees its errors at once. One
// that cannot be read or started at all is Invalid: it is a mistake in the call.
func (d *DiscoveryConfig) Check(ctx context.Context) error {
	if err := d.Validate(); err != nil || !d.Listed() {
		return err
	}
	_, err := d.Ask(ctx)
	exit, ended := errors.AsType[*exec.ExitError](err)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, exec.ErrNotFound) || ended && (exit.ExitCode() == notExecutable || exit.ExitCode() == notThere) {
		return errcode.Errorf(errcode.Invalid, "%w", err)
	}
	return err
}

// Exit codes of a shell for a command that it cannot start.
const (
	notExecutable = 126
	notThere      = 127
)
