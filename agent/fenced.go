package agent

import (
	"context"

	"github.com/regroup-io/regroup/events"
)

// replaced ends this incarnation, because discovery has admitted another agent for this node. The
// workers here are no longer part of any job.
func (a *Agent) replaced(why error) {
	if !a.leaving.Load() && a.fence.CompareAndSwap(nil, &why) {
		a.opt.Logger.Error("another agent has taken this node's name: this one ends its workers and itself", "node", a.opt.Node, "reason", why)
		close(a.fenced)
	}
}

// checkAddress ends this incarnation if peers cannot reach it any more under the address that its
// workers have, because the machine has another one now. The next incarnation takes that.
func (a *Agent) checkAddress() {
	if a.opt.Reachable == nil {
		return
	}
	why := a.opt.Reachable()
	if why != nil && !a.leaving.Load() && a.fence.CompareAndSwap(nil, &why) {
		a.opt.Logger.Error("the address of this node has changed: its workers end, and it joins anew", "node", a.opt.Node, "reason", why)
		a.moved.Store(true)
		close(a.fenced)
	}
}

// ended returns Run's error for an incarnation that was replaced.
func (a *Agent) ended() error {
	if why := a.fence.Load(); why != nil {
		return events.Errorf(events.Fenced, "agent: node %s: %w", a.opt.Node, *why)
	}
	return nil
}

// RunIncarnations runs successive incarnations of an agent: one that was fenced is followed by a
// new one, which waits until the name is free. begin creates an incarnation.
func RunIncarnations(ctx context.Context, begin func() (run func(context.Context) error, err error)) error {
	for {
		run, err := begin()
		if err != nil {
			return err
		}
		if err = run(ctx); events.CodeOf(err) != events.Fenced || ctx.Err() != nil {
			return err
		}
	}
}
