package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/regroup-io/regroup/events"
)

// lock keeps other agents out of the state directory while this one runs, because fencing an
// earlier incarnation would kill the workers of a running agent. The kernel releases the lock when
// the process ends.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, events.Errorf(events.Invalid, "agent: state directory: %w", err)
	}
	path := filepath.Join(dir, "agent.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, events.Errorf(events.Invalid, "agent: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, events.Errorf(events.Conflict, "agent: another agent runs here with the state directory %s: stop it, or give this one a node name of its own", dir)
		}
		if errors.Is(err, syscall.ENOLCK) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EOPNOTSUPP) {
			return func() {}, nil // a file system without locks: the user must keep agents apart
		}
		return nil, events.Errorf(events.Internal, "agent: lock %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}

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
// new one, which waits until the name is free. begin creates an incarnation; after is false for the
// first.
func RunIncarnations(ctx context.Context, begin func(after bool) (run func(context.Context) error, err error)) error {
	for after := false; ; after = true {
		run, err := begin(after)
		if err != nil {
			return err
		}
		if err = run(ctx); events.CodeOf(err) != events.Fenced || ctx.Err() != nil {
			return err
		}
	}
}
