// Package round decides which workers form a generation of a job, and with which ranks. It is the
// pure half of the rendezvous service: one State per job, changed by Step.
//
//	          placement.set              all awaited joined, or last call over
//	(none) ───────────────────► open ───────────────────────────────► sealed
//	                           ▲  │ min joined, others awaited         │
//	                           │  └──────────► settling ──────────────►│
//	                           │                                       │
//	                           └── a member died, left or must leave ──┘      job ended: closed
//
// The job has one member per place. The states of a member:
//
//	pending         its worker is starting; it prefetches the state if a generation is running
//	joined          its worker waits for the next generation
//	active          its worker is in the sealed generation
//	dead            its worker has failed and the registry has not decided yet
//	respawn denied  the registry has decided that the worker is not started again
//	lost            its node is gone
//	finished        its worker has exited successfully
//
// The rules are told as scripts in testdata; ranks are numbered as in Horovod.
package round

import (
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tracing"
)

// Machine implements controller.Machine[State].
type Machine struct{}

// New returns the state of a job that was never placed.
func (Machine) New(entity string) State {
	return State{View: events.RoundView{Job: ident.JobID(entity), State: events.RoundStateOpen, Cause: events.Cause{Rank: -1}}}
}

// Deadline returns when the round stops waiting: the earliest of the accusations' deadlines and the
// last call. Between rounds it is the end of the time in which newcomers are batched.
func (Machine) Deadline(s State) time.Time {
	if s.closed() {
		return s.DeleteAt
	}
	if s.Rebuilt {
		return s.SealedAt // at once
	}
	return events.Earliest(s.waitDeadline(), s.linksDeadline())
}

// waitDeadline returns when the round stops waiting for awaited members.
func (s *State) waitDeadline() time.Time {
	if s.closed() {
		return zeroTime
	}
	var nodes time.Time
	if s.Nodes != nil && s.Stopping == nil && !s.Finishing {
		nodes = s.Nodes.deadline()
	}
	return events.Earliest(s.membersDeadline(), nodes)
}

func (s *State) membersDeadline() time.Time {
	switch {
	case s.open():
	case s.Growth != nil:
		return s.Growth.By
	default:
		return zeroTime
	}
	d := s.LastCall
	if !s.BackOff.IsZero() { // all awaited members have joined
		d = s.BackOff
	}
	for x := range s.all() {
		if x.State == active {
			d = events.Earliest(d, x.RejoinBy)
		}
	}
	return d
}

// transition is one Step in progress.
type transition struct {
	*State
	in  events.Input
	now time.Time
	d   events.Decision
}

// Step applies one input.
func (m Machine) Step(s State, in events.Input, now time.Time) (State, events.Decision) {
	s, applied := m.Apply(s, in, now)
	s, d := m.Conclude(s, in, now)
	d.Reply, d.Refusal = applied.Reply, applied.Refusal
	d.Facts, d.Hints, d.Spans = append(applied.Facts, d.Facts...), append(applied.Hints, d.Hints...), append(applied.Spans, d.Spans...)
	return s, d
}

// Apply applies the input itself and answers it.
func (Machine) Apply(s State, in events.Input, now time.Time) (State, events.Decision) {
	t := &transition{State: &s, in: in, now: now}
	if s.closed() {
		switch b := in.Body.(type) {
		case events.MemberJoin:
			t.d.Reply = events.MemberWaiting{Job: s.View.Job, Over: true}
		case events.MemberJoins:
			t.joins(b)
		case events.NodeEnter, events.NodeExit, events.RendezvousClose:
			t.answerClosed(b)
		case events.Heartbeat:
			t.heartbeat(b)
		case events.JobRemoved:
			t.remove()
		case events.Tick:
			if !s.DeleteAt.IsZero() && !now.Before(s.DeleteAt) {
				t.remove()
			}
		}
		return s, t.d
	}
	t.applyToNodes()
	switch b := in.Body.(type) {
	case events.PlacementSet:
		t.placement(b)
	case events.MemberJoin:
		t.reply(t.join(b))
	case events.MemberJoins:
		t.joins(b)
	case events.PeersQuery:
		t.reply(t.peers(b))
	case events.Notice:
		t.exited(b.Exited)
	case events.WorkerExited:
		t.exited(b)
	case events.WorkerReady:
		t.stepReported(b.Step)
		if b.Generation <= s.View.Generation && b.Generation > s.LastGood {
			s.LastGood = b.Generation
			t.releaseStateHolder()
			t.clearLinkFailures()
		}
	case events.JobRespawned:
		t.respawned(b)
	case events.JobRespawnDenied:
		t.denyRespawn(b)
	case events.NodeEvent:
		t.nodeFact(b)
	case events.Heartbeat:
		t.heartbeat(b)
	case events.JobStalled:
		t.stalled(b)
	case events.JobFinishing:
		t.finish()
	case events.JobStopping:
		s.Stopping = &b
	case events.JobEndFact:
		t.end(b.End())
	case events.JobRemoved:
		t.end(events.JobEnd{Job: b.Job, Reason: "its record was removed"})
		t.remove()
	}
	return s, t.d
}

// Conclude seals, requests changes and publishes launches according to the resulting state.
func (Machine) Conclude(s State, last events.Input, now time.Time) (State, events.Decision) {
	t := &transition{State: &s, in: last, now: now}
	if !s.closed() {
		t.regain()
		t.dropDisconnected()
		t.updateRendezvous()
		t.expireAccused()
		t.updateLinks()
		t.applyGrowth()
		t.trySeal()
		t.publishMissing()
		t.revertChange()
	}
	t.updateView()
	t.launches()
	t.d.Forget = !s.DeleteAt.IsZero()
	return s, t.d
}

func (t *transition) reply(b events.Body, err error) {
	if t.d.Refusal = err; err == nil {
		t.d.Reply = b
	}
}

// publish adds a fact in the trace of the round's cause.
func (t *transition) publish(b events.Body) {
	t.d.Facts = append(t.d.Facts, events.Fact{Body: b, Trace: t.trace()})
}

// trace returns the trace of the open incident, or of the job's start.
func (s *State) trace() string {
	if s.LastGood == 0 {
		return tracing.JobTrace(s.View.Job)
	}
	return tracing.IncidentTrace(s.View.Job, s.LastGood)
}

// propose opens the next generation, unless one is open already. ageMS is the age of the cause.
func (t *transition) propose(c events.Cause, ageMS float64) {
	if t.open() || t.Finishing || t.Stopping != nil {
		return
	}
	t.View.Proposed = t.View.Generation + 1
	t.View.State = events.RoundStateOpen
	t.View.Cause = c
	t.NoticeAt, t.NoticeMS = t.now, ageMS
	t.LastCall, t.BackOff, t.Growth = time.Time{}, time.Time{}, nil
	t.publish(events.RoundOpened{Job: t.View.Job, Proposed: t.View.Proposed, Expected: t.awaitedPlaces(), Cause: c})
	if !t.graceful() && t.View.Generation > 0 {
		t.abandon(c)
	}
}

// abandon ends the sealed generation by a core NATS signal, so that survivors of a fault that they
// cannot detect leave their collectives without delay.
func (t *transition) abandon(c events.Cause) {
	t.d.Hints = append(t.d.Hints, events.Signal{Subject: events.NoticeSubject(t.View.Job), Body: events.NoticeEnvelope{
		Abandon: &events.Abandon{Job: t.View.Job, Generation: t.View.Generation, Reason: string(c.Kind) + " " + c.Detail},
	}})
}

// graceful reports whether members leave the sealed generation at a commit, as requested.
func (s *State) graceful() bool { return s.Planned && s.View.Cause.Kind.Planned() }

func (t *transition) finish() {
	t.Finishing = true
	if t.open() {
		t.View.Proposed, t.LastCall, t.BackOff = 0, time.Time{}, time.Time{}
		t.View.State = events.RoundStateSealed
		for x := range t.all() { // no further generation: waiting workers get the answer that the job is over
			if x.State == joined && t.rank(x) >= 0 {
				x.State = active
			}
		}
	}
}

func (t *transition) end(e events.JobEnd) {
	t.View.State, t.View.Proposed, t.LastCall, t.BackOff = events.RoundStateClosed, 0, time.Time{}, time.Time{}
	if t.Stopping == nil {
		t.Stopping = &events.JobStopping{Job: t.View.Job, Reason: e.Reason}
	}
	t.publish(events.RoundClosed{Job: t.View.Job, Reason: e.Reason})
}

// remove marks the document for deletion, which is tried again until its outbox is empty.
func (t *transition) remove() { t.DeleteAt = t.now.Add(removeRetry) }

func (t *transition) updateView() {
	t.View.Joined, t.View.Expected = t.places(func(x *Member) bool { return x.State == joined }), nil
	if t.open() {
		t.View.Expected = t.awaitedPlaces()
	}
	t.View.Until, t.View.LinkPartitions = t.waitDeadline(), t.linkPartitions()
}
