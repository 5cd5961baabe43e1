package agent

import (
	"cmp"
	"context"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/limits"
)

// settleWithin is how long a departing node must have been idle before its agent leaves: work
// assigned just before may still be on its way.
const settleWithin = time.Second

// Depart announces that this node will go away. Its work moves, at a commit if the programs make
// them; when none is left, the agent says goodbye and Run returns. If no other node can take the
// work, it continues here until it is killed, and what is lost then is no counted failure. Only the
// first announcement has an effect.
func (a *Agent) Depart(d events.Departure) {
	d.Reason = cmp.Or(d.Reason, "it was announced")
	d.Reason = limits.Shorten(d.Reason, limits.Text.Max)
	if !a.departing.CompareAndSwap(nil, &d) {
		return
	}
	a.opt.Logger.Info("this node departs: its work moves away", "node", a.opt.Node, "reason", d.Reason, "until", d.Until)
	close(a.departed)
	a.inputs.put(worker.Departing{Departure: d})
	notify(a.hello)
}

// heard records that discovery knows of the departure.
func (a *Agent) heard(h events.NodeHello) {
	if h.Departing != nil && !a.announced.Swap(true) {
		a.inputs.put(worker.Tick{}) // wakes own
	}
}

// ending is the state of the agent's shutdown.
type ending struct {
	a      *Agent
	stop   <-chan struct{}  // request from outside; nil = it was received
	by     <-chan time.Time // when workers that have not moved are stopped
	kill   <-chan time.Time // when they are killed
	since  time.Time        // since when the node has been idle
	asked  bool             // all workers were stopped
	hurry  bool             // without their grace
	goneBy string           // reason of the goodbye
}

// over reports whether the agent may leave, and if not, when to check again at the latest.
func (e *ending) over(now time.Time) (bool, time.Duration) {
	a := e.a
	switch {
	case e.asked:
		return a.state.Idle() && a.inputs.empty(), time.Hour
	case a.member != nil || a.departing.Load() == nil || !a.announced.Load() || !a.state.Unused():
		e.since = time.Time{}
		return false, time.Hour
	case e.since.IsZero():
		e.since = now
	}
	left := settleWithin - now.Sub(e.since)
	if left <= 0 {
		e.goneBy = "departed: " + a.departing.Load().Reason
		e.shut(false)
	}
	return false, max(left, time.Millisecond)
}

// begin handles the request to stop the agent. With workers it begins as a departure.
func (e *ending) begin() {
	e.stop, e.kill = nil, time.After(e.a.opt.Config.StopWithin)
	// An agent that joined a single job has left that job before.
	if e.a.opt.Config.DepartWithin <= 0 || e.a.state.Idle() || e.hurry || e.a.member != nil {
		e.shut(false)
		return
	}
	e.by = time.After(e.a.opt.Config.DepartWithin)
	e.a.Depart(events.Departure{Reason: "its agent was told to stop", Until: time.Now().Add(e.a.opt.Config.StopWithin)})
}

func (e *ending) shut(now bool) {
	e.asked = true
	e.a.inputs.put(worker.Shutdown{Now: now || e.hurry})
}

// own runs the machine; only its goroutine uses a.state. It returns when the agent must leave and
// no process is left.
func (a *Agent) own(ctx, work context.Context) (reason string) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	e := &ending{a: a, stop: ctx.Done(), goneBy: "the agent was stopped"}
	fenced := a.fenced
	for {
		for _, in := range a.inputs.take() {
			a.step(work, in)
		}
		joins := a.sendJoins(work)
		a.show()
		over, wait := e.over(time.Now())
		if over {
			return e.goneBy
		}
		if d := worker.Deadline(a.state); !d.IsZero() {
			wait = min(wait, time.Until(d))
		}
		if !joins.IsZero() {
			wait = min(wait, time.Until(joins))
		}
		timer.Reset(wait)
		select {
		case <-a.inputs.wake:
		case <-timer.C:
			a.inputs.put(worker.Tick{})
		case <-e.stop:
			e.begin()
		case <-e.by:
			e.shut(false)
		case <-e.kill:
			e.shut(true)
		case <-fenced:
			fenced, e.stop, e.hurry, e.goneBy = nil, nil, true, "it was fenced"
			e.shut(true)
		case <-a.hurry:
			if e.hurry = true; e.stop == nil {
				e.shut(true)
			}
		case <-work.Done():
			return e.goneBy
		}
	}
}
