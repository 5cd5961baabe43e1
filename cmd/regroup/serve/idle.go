package serve

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/events"
)

// idle is the store of an ended broker: it is opened for reading, and its services run once they
// are needed.
type idle struct {
	local *Local

	once    sync.Once
	stop    context.CancelFunc
	running errgroup.Group
	failed  error
}

// serve runs the services until close.
func (i *idle) serve() error {
	i.once.Do(func() {
		if i.failed = i.local.Discovery.Check(context.Background()); i.failed != nil {
			return
		}
		var ctx context.Context
		ctx, i.stop = context.WithCancel(context.Background())
		i.running.Go(func() error { return i.local.Run(ctx) })
	})
	return i.failed
}

func (i *idle) close() {
	if i.stop != nil {
		i.stop()
		if err := i.running.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			i.local.Process.Logger.Warn("a service has ended", "code", string(events.CodeOf(err)), "reason", err.Error())
		}
	}
	i.local.Close()
}
