package agent

import (
	"context"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
)

// ending is the state of the agent's shutdown.
type ending struct {
	a           *Agent
	stop        <-chan struct{}  // request from outside; nil = it was received
	by          <-chan time.Time // when workers that have not moved are stopped
	kill        <-chan time.Time // when they are killed
	since       time.Time        // since when the departing node has had nothing to run
	asked       bool             // all workers are told to stop
	stopNow     bool             // without their grace
	leaveReason string           // reason of the goodbye
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
	left := idleBeforeLeaving - now.Sub(e.since)
	if left <= 0 {
		e.leaveReason = "departed: " + a.departing.Load().Reason
		e.shut(false)
	}
	return false, max(left, time.Millisecond)
}

// begin handles the request to stop the agent. If workers run, the node first departs: its work
// moves, then the agent stops.
func (e *ending) begin() {
	e.stop, e.kill = nil, time.After(stopWithin)
	// An agent that joined a single job has left that job already.
	if e.a.opt.Config.DepartWithin <= 0 || e.a.state.Idle() || e.stopNow || e.a.member != nil {
		e.shut(false)
		return
	}
	e.by = time.After(e.a.opt.Config.DepartWithin)
	e.a.Depart(events.Departure{Reason: "its agent was told to stop", Until: time.Now().Add(stopWithin)})
}

func (e *ending) shut(now bool) {
	e.asked = true
	e.a.inputs.put(worker.Shutdown{Now: now || e.stopNow})
}

// runLoop runs the machine; only its goroutine uses a.state. It returns when the agent must leave
// and no process is left, or when work ends.
func (a *Agent) runLoop(ctx, work context.Context) (reason string) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	e := &ending{a: a, stop: ctx.Done(), leaveReason: "the agent was stopped"}
	fenced := a.fenced
	for {
		for _, in := range a.inputs.take() {
			a.step(work, in)
		}
		joins := a.sendJoins(work)
		a.show()
		over, wait := e.over(time.Now())
		if over {
			return e.leaveReason
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
			fenced, e.stop, e.stopNow, e.leaveReason = nil, nil, true, "it was fenced"
			e.shut(true)
		case <-a.stopNow:
			if e.stopNow = true; e.stop == nil {
				e.shut(true)
			}
		case <-work.Done():
			return e.leaveReason
		}
	}
}
