// Package round decides who is in a generation of a job, with which rank. It is the pure half of
// the rendezvous service: one State per job, changed by Step.
//
//	          placement.set              all expected joined, or last call over
//	(none) ───────────────────► open ───────────────────────────────► sealed
//	                           ▲  │ min joined, some silent            │
//	                           │  └──────────► settling ──────────────►│
//	                           │                                       │
//	                           └── a member died, left or was asked ───┘      job ended: closed, for good
//
// A place of the job is a seat. What can be said of a seat:
//
//	coming    its worker is starting (first life or respawn); warms up aside when a generation is running
//	joined    its worker has asked to be in the next generation and waits
//	member    its worker is in the sealed generation
//	dead      its worker has ended and the registry has not said what follows
//	blamed    the registry's verdict: the seat stays empty
//	lost      its node is gone
//	finished  its worker has ended well
//
// The rules are those of design.md sections 7 and 8; the ranks are Horovod's.
package round

import (
	"time"

	"github.com/regroup-io/regroup/events"
)

// Machine is the rendezvous as controller.Machine[State] wants it.
type Machine struct{}

// New returns the state of a job that was never placed.
func (Machine) New(entity string) State {
	return State{View: events.RoundView{Job: events.JobID(entity), State: events.RoundStateOpen, Cause: events.Cause{Rank: -1}}}
}

// Deadline returns when silent members are waited for no longer: the earliest of the accusations'
// and the last call. Between rounds it is when newcomers have waited long enough for each other.
func (Machine) Deadline(s State) time.Time {
	if s.closed() {
		return s.Removed
	}
	return earlier(s.waitDeadline(), s.linksDeadline())
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// waitDeadline is when those who are expected are waited for no longer.
func (s *State) waitDeadline() time.Time {
	if s.closed() {
		return time.Time{}
	}
	var nodes time.Time
	if s.Nodes != nil && s.Stopping == nil && !s.Finishing {
		nodes = s.Nodes.deadline()
	}
	return earlier(s.membersDeadline(), nodes)
}

func (s *State) membersDeadline() time.Time {
	switch {
	case s.open():
	case s.Growth != nil:
		return s.Growth.By
	default:
		return time.Time{}
	}
	d := s.LastCall
	if !s.BackOff.IsZero() { // everybody who is waited for is there
		d = s.BackOff
	}
	for i := range s.Members {
		x := &s.Members[i]
		if x.State == active && !x.RejoinBy.IsZero() && (d.IsZero() || x.RejoinBy.Before(d)) {
			d = x.RejoinBy
		}
	}
	return d
}

// transition is one Step under way.
type transition struct {
	*State
	in  events.Input
	now time.Time
	d   events.Decision
}

// Step takes one input into account.
func (m Machine) Step(s State, in events.Input, now time.Time) (State, events.Decision) {
	s, said := m.Apply(s, in, now)
	s, d := m.Conclude(s, in, now)
	d.Reply, d.Refusal = said.Reply, said.Refusal
	d.Facts, d.Hints, d.Spans = append(said.Facts, d.Facts...), append(said.Hints, d.Hints...), append(said.Spans, d.Spans...)
	return s, d
}

// Apply changes what the input itself says, and answers it.
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
			if !s.Removed.IsZero() && !now.Before(s.Removed) {
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
		t.join(b)
	case events.MemberJoins:
		t.joins(b)
	case events.PeersQuery:
		t.peers(b)
	case events.Notice:
		t.exited(b.Exited)
	case events.WorkerExited:
		t.exited(b)
	case events.WorkerReady:
		if b.Generation <= s.View.Generation && b.Generation > s.LastGood {
			s.LastGood = b.Generation
			t.releaseStateHolder()
			t.clearLinkFailures()
		}
	case events.JobRespawned:
		t.respawned(b)
	case events.JobRespawnDenied:
		t.denyRespawn(b)
	case events.NodeLost:
		if t.newestFact(b.Node) {
			t.noteConnection(b.NodeFact)
			t.nodeLost(b.Node, b.Incarnation, events.CauseNodeLost)
		}
	case events.NodeLeft:
		if t.newestFact(b.Node) {
			t.noteConnection(b.NodeFact)
			t.nodeLost(b.Node, b.Incarnation, events.CauseShrink)
		}
	case events.NodeJoined:
		if t.newestFact(b.Node) {
			t.noteConnection(b.NodeFact)
			t.nodeReturned(b.NodeFact)
		}
	case events.NodeSuspected:
		if t.newestFact(b.Node) {
			t.noteConnection(b.NodeFact)
			t.newIncarnation(b.NodeFact)
		}
	case events.NodeRecovered:
		if t.newestFact(b.Node) {
			t.noteConnection(b.NodeFact)
			t.newIncarnation(b.NodeFact)
			t.undoNodeLoss(b.NodeFact)
		}
	case events.NodeDraining:
		if t.newestFact(b.Node) {
			t.noteConnection(b.NodeFact)
			t.newIncarnation(b.NodeFact)
		}
	case events.Heartbeat:
		t.heartbeat(b)
	case events.JobStalled:
		t.stalled(b)
	case events.JobFinishing:
		t.finish()
	case events.JobStopping:
		s.Stopping = &b
	case events.JobSucceeded:
		t.end(b.JobEnd)
	case events.JobFailed:
		t.end(b.JobEnd)
	case events.JobStopped:
		t.end(b.JobEnd)
	case events.JobRemoved:
		t.end(events.JobEnd{Job: b.Job, Reason: "its record was removed"})
		t.remove()
	}
	return s, t.d
}

// Conclude seals, asks for changes and tells launches, as the whole state has it now.
func (Machine) Conclude(s State, last events.Input, now time.Time) (State, events.Decision) {
	t := &transition{State: &s, in: last, now: now}
	if !s.closed() {
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
	t.d.Forget = !s.Removed.IsZero()
	return s, t.d
}

// publish adds a fact in the trace of what the round is about.
func (t *transition) publish(b events.Body) {
	t.d.Facts = append(t.d.Facts, events.Fact{Body: b, Trace: t.trace()})
}

// trace is the trace of the open incident, or of the job's start.
func (s *State) trace() string {
	if s.LastGood == 0 {
		return events.JobTrace(s.View.Job)
	}
	return events.TraceOf(s.View.Job, s.LastGood)
}

// propose opens the next generation, unless one is being agreed on already. ageMS is how old the
// reason is.
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

// abandon ends the sealed generation over core messaging, so that survivors of a fault that they
// cannot see leave their collectives without any store.
func (t *transition) abandon(c events.Cause) {
	t.d.Hints = append(t.d.Hints, events.Signal{Subject: events.NoticeSubject(t.View.Job), Body: events.NoticeEnvelope{
		Abandon: &events.Abandon{Job: t.View.Job, Generation: t.View.Generation, Reason: string(c.Kind) + " " + c.Detail},
	}})
}

// graceful tells whether members leave the sealed generation at a commit of their own, as they were
// asked to.
func (s *State) graceful() bool { return s.Planned && s.View.Cause.Kind.Planned() }

func (t *transition) finish() {
	t.Finishing = true
	if t.open() {
		t.View.Proposed, t.LastCall, t.BackOff = 0, time.Time{}, time.Time{}
		t.View.State = events.RoundStateSealed
		for i := range t.Members { // nobody regroups: those who wait are told that it is over
			if x := &t.Members[i]; x.State == joined && t.rankOf(x.Place, x.Incarnation) >= 0 {
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

// remove lets the document go, now or as soon as everything in it is told.
func (t *transition) remove() { t.Removed = t.now.Add(removeRetry) }

// updateView brings the public view up to date with the seats.
func (t *transition) updateView() {
	t.View.Joined, t.View.Expected = nil, nil
	for i := range t.Members {
		x := &t.Members[i]
		if x.State == joined {
			t.View.Joined = append(t.View.Joined, x.Place)
		}
	}
	if t.open() {
		t.View.Expected = t.awaitedPlaces()
	}
	t.View.Until, t.View.LinkPartitions = t.waitDeadline(), t.linkPartitions()
}
