package round

import (
	"time"

	"github.com/regroup-io/regroup/events"
)

// Machine is the rendezvous as loop.Machine[State] wants it.
type Machine struct{}

// New returns the state of a job that was never placed.
func (Machine) New(entity string) State {
	return State{View: events.RoundView{Job: events.JobID(entity), State: events.RoundOpen, Cause: events.Cause{Rank: -1}}}
}

// Deadline returns when silent members are waited for no longer: the earliest of the accusations' and the last call. Between
// rounds it is when newcomers have waited long enough for each other.
func (Machine) Deadline(s State) time.Time {
	if s.closed() {
		return time.Time{}
	}
	var nodes time.Time
	if s.External != nil && s.Stopping == nil && !s.Finishing {
		nodes = s.External.wake()
	}
	d := s.seatsDeadline()
	if d.IsZero() || (!nodes.IsZero() && nodes.Before(d)) {
		d = nodes
	}
	return d
}

func (s *State) seatsDeadline() time.Time {
	switch {
	case s.open():
	case s.Grow != nil:
		return s.Grow.By
	default:
		return time.Time{}
	}
	d := s.LastCall
	for _, x := range s.Seats {
		if x.State == member && !x.Accused.IsZero() && (d.IsZero() || x.Accused.Before(d)) {
			d = x.Accused
		}
	}
	return d
}

// turn is one Step under way.
type turn struct {
	*State
	in  events.Input
	now time.Time
	d   events.Decision
	to  map[events.NodeID]bool // nodes that are told their launch again although it has not changed

	ranks map[events.Place]int // in the sealed generation; nil = not looked up yet
}

// Step takes one input into account.
func (Machine) Step(s State, in events.Input, now time.Time) (State, events.Decision) {
	t := &turn{State: &s, in: in, now: now}
	if s.closed() {
		switch b := in.Body.(type) {
		case events.MemberJoin:
			t.d.Reply = events.MemberWaiting{Job: s.View.Job, Over: true}
		case events.NodeEnter, events.NodeExit, events.RendezvousClose:
			t.overExternal(b)
		case events.Heartbeat:
			t.heartbeat(b)
			t.launches()
		}
		return s, t.d
	}
	t.external()
	switch b := in.Body.(type) {
	case events.PlacementSet:
		t.placement(b)
	case events.MemberJoin:
		t.join(b)
	case events.PeersQuery:
		t.peers(b)
	case events.Notice:
		t.exited(b.Exited)
	case events.WorkerExited:
		t.exited(b)
	case events.WorkerReady:
		if b.Generation <= s.View.Generation && b.Generation > s.Good {
			s.Good = b.Generation
			t.letKeeperGo()
		}
	case events.JobRespawned:
		t.respawned(b)
	case events.JobBlamed:
		t.blamed(b)
	case events.NodeLost:
		if t.nextOf(b.Node) {
			t.linked(b.NodeFact)
			t.nodeGone(b.Node, b.Incarnation, events.CauseNodeLost)
		}
	case events.NodeLeft:
		if t.nextOf(b.Node) {
			t.linked(b.NodeFact)
			t.nodeGone(b.Node, b.Incarnation, events.CauseShrink)
		}
	case events.NodeJoined:
		if t.nextOf(b.Node) {
			t.linked(b.NodeFact)
			t.nodeBack(b.NodeFact)
		}
	case events.NodeSuspected:
		if t.nextOf(b.Node) {
			t.linked(b.NodeFact)
		}
	case events.NodeRecovered:
		if t.nextOf(b.Node) {
			t.linked(b.NodeFact)
		}
	case events.NodeDraining:
		if t.nextOf(b.Node) {
			t.linked(b.NodeFact)
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
	}
	if !s.closed() {
		t.severed()
		t.lookAround()
		t.expireAccused()
		t.grown()
		t.settle()
		t.tellMissed()
		t.undo()
	}
	t.describe()
	t.launches()
	return s, t.d
}

// rankOf returns the rank of a life in the sealed generation, -1 if it has none.
func (t *turn) rankOf(p events.Place, inc events.Incarnation) int {
	if t.ranks == nil {
		t.ranks = make(map[events.Place]int, len(t.View.Members))
		for r, m := range t.View.Members {
			t.ranks[m.Place] = r
		}
	}
	if r, ok := t.ranks[p]; ok && t.View.Members[r].Incarnation == inc {
		return r
	}
	return -1
}

// tell adds a fact in the trace of what the round is about.
func (t *turn) tell(b events.Body) {
	t.d.Facts = append(t.d.Facts, events.Fact{Body: b, Trace: t.trace()})
}

// trace is the trace of the open incident, or of the job's start.
func (t *turn) trace() string {
	if t.Good == 0 {
		return events.JobTrace(t.View.Job)
	}
	return events.TraceOf(t.View.Job, t.Good)
}

// propose opens the next generation, unless one is being agreed on already. ageMS is how old the reason is.
func (t *turn) propose(c events.Cause, ageMS float64) {
	if t.open() || t.Finishing || t.Stopping != nil {
		return
	}
	t.View.Proposed = t.View.Generation + 1
	t.View.State = events.RoundOpen
	t.View.Cause = c
	t.NoticeAt, t.NoticeMS = t.now, ageMS
	t.LastCall, t.Grow = time.Time{}, nil
	t.tell(events.RoundOpened{Job: t.View.Job, Proposed: t.View.Proposed, Expected: t.expectedPlaces(), Cause: c})
	if !t.gentle() && t.View.Generation > 0 {
		t.abandon(c)
	}
}

// abandon ends the sealed generation over core messaging, so that survivors of a fault that they cannot see leave their
// collectives without any store.
func (t *turn) abandon(c events.Cause) {
	t.d.Pokes = append(t.d.Pokes, events.Signal{Subject: events.NoticeSubject(t.View.Job), Body: events.NoticeEnvelope{
		Abandon: &events.Abandon{Job: t.View.Job, Generation: t.View.Generation, Reason: string(c.Kind) + " " + c.Detail},
	}})
}

// gentle tells whether members leave the sealed generation at a commit of their own, as they were asked to.
func (t *turn) gentle() bool { return t.Planned && t.View.Cause.Kind.Planned() }

func (t *turn) finish() {
	t.Finishing = true
	if t.open() {
		t.View.Proposed, t.LastCall = 0, time.Time{}
		t.View.State = events.RoundIsSealed
		for i := range t.Seats { // nobody regroups: those who wait are told that it is over
			if x := &t.Seats[i]; x.State == joined && t.rankOf(x.Place, x.Incarnation) >= 0 {
				x.State = member
			}
		}
	}
}

func (t *turn) end(e events.JobEnd) {
	t.View.State, t.View.Proposed, t.LastCall = events.RoundIsClosed, 0, time.Time{}
	if t.Stopping == nil {
		t.Stopping = &events.JobStopping{Job: t.View.Job, Reason: e.Reason}
	}
	t.tell(events.RoundClosed{Job: t.View.Job, Reason: e.Reason})
}

// describe brings the public view up to date with the seats.
func (t *turn) describe() {
	t.View.Joined, t.View.Expected = nil, nil
	for _, x := range t.Seats {
		if x.State == joined {
			t.View.Joined = append(t.View.Joined, x.Place)
		}
	}
	if t.open() {
		t.View.Expected = t.expectedPlaces()
	}
	t.View.Until = Machine{}.Deadline(*t.State)
}
