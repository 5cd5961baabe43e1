package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/wait"
)

// lease keeps the agent's lease: it asks discovery for it after each heartbeat, and passes the
// times when it ends to the machine, and to a driver that guards processes while this one is
// frozen. What discovery answers counts from when it was asked.
type lease struct {
	a *Agent

	mu        sync.Mutex
	restart   time.Duration // lengths, as in the newest grant; 0 = none yet
	inPlace   time.Duration
	asked     time.Time // when the newest grant was asked for
	timesLost uint64
	denied    bool
}

// outageEvery is how often the agent looks why it has no connection.
const outageEvery = 100 * time.Millisecond

// run asks until work ends. Before the first grant no process starts, so it is asked for often.
func (l *lease) run(work context.Context) {
	soon := wait.Backoff{First: 5 * time.Millisecond, Max: 250 * time.Millisecond}
	for work.Err() == nil && !l.granted() {
		l.ask(work)
		soon.Sleep(work)
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	slots := make(chan struct{}, 4) // an answer that is late must not delay the next question
	for {
		select {
		case <-l.a.renew:
		case <-work.Done():
			return
		}
		select {
		case slots <- struct{}{}:
			asking.Go(func() {
				l.ask(work)
				<-slots
			})
		default:
		}
	}
}

func (l *lease) granted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.restart > 0
}

func (l *lease) ask(work context.Context) {
	a, asked := l.a, time.Now()
	g, err := call[events.LeaseGrant](work, a, events.ServiceDiscovery, events.VerbRenew, events.LeaseRenew{
		Node: a.opt.Node, Incarnation: a.opt.Incarnation, Link: a.opt.Ports.Links.Own(),
	}, "")
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, broker.ErrNoResponder) && a.opt.Ports.Links.Alone() && l.restart > 0 && asked.After(l.asked) {
		// No replica of discovery runs: until one does, which gives each node a full timeout,
		// nobody gives the slots away.
		l.asked = asked
		l.put(asked)
	}
	if err != nil {
		a.opt.Logger.Debug("the lease was not renewed", "node", a.opt.Node, "reason", err)
		return
	}
	l.denied = false
	l.lostBefore(g.TimesLost)
	if asked.After(l.asked) {
		l.asked, l.restart, l.inPlace = asked, g.Restart.D(), g.InPlace.D()
		l.put(asked)
	}
}

// welcomed applies how often discovery has declared this incarnation lost.
func (l *lease) welcomed(w events.NodeWelcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lostBefore(w.TimesLost)
}

func (l *lease) lostBefore(times uint64) {
	if times > l.timesLost {
		l.timesLost = times
		l.a.inputs.put(worker.LeaseLost{Reason: "discovery had declared this node lost, and its slots may have been given away"})
	}
}

// put passes the end of a lease on that begins at a time.
func (l *lease) put(from time.Time) {
	in := worker.LeaseRenewed{
		Restart: from.Add(l.restart), InPlace: from.Add(l.inPlace),
		Reason: fmt.Sprintf("discovery has not answered for %s, and the slot may be given to another node", l.restart.Round(100*time.Millisecond)),
	}
	l.a.opt.Driver.Lease(in.Restart, in.InPlace) // before a process can start
	l.a.inputs.put(in)
}

// watchOutage looks why there is no connection. Refused credentials end the lease. While every
// broker is known to be stopped, nobody can give the slots away: that prolongs it, for at most the
// length of the long one.
func (l *lease) watchOutage(work context.Context) error {
	return wait.Every(work, outageEvery, func(time.Time) error {
		o := l.a.opt.Ports.Links.Outage()
		l.mu.Lock()
		defer l.mu.Unlock()
		switch {
		case o.Denied && !l.denied:
			l.denied = true
			l.a.opt.Logger.Error("the broker refuses this agent: its workers end", "node", l.a.opt.Node)
			l.a.inputs.put(worker.LeaseLost{All: true, Reason: "the broker refuses the credentials of its agent"})
		case !o.Denied && l.restart > 0 && o.Stopped.After(l.asked) && !l.denied:
			if last := l.asked.Add(l.inPlace); o.Stopped.Before(last) {
				l.put(o.Stopped)
			}
		}
		return nil
	})
}

// replaced ends this incarnation, because discovery has admitted another agent for this node. The
// workers here are no longer part of any job.
func (a *Agent) replaced(why error) {
	if !a.leaving.Load() && a.fence.CompareAndSwap(nil, &why) {
		a.opt.Logger.Error("another agent has taken this node's name: this one ends its workers and itself", "node", a.opt.Node, "reason", why)
		close(a.fenced)
	}
}

// endIfMoved ends this incarnation if peers cannot reach it any more under the address that its
// workers have, because the machine has another one now. The next incarnation takes that.
func (a *Agent) endIfMoved() {
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
		return errcode.Errorf(errcode.Fenced, "agent: node %s: %w", a.opt.Node, *why)
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
		if err = run(ctx); errcode.Of(err) != errcode.Fenced || ctx.Err() != nil {
			return err
		}
	}
}
