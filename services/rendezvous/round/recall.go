package round

import (
	"time"

	"github.com/regroup-io/regroup/events"
)

// Recall applies a fact from the log to the rendezvous of a job whose document was lost, in part or
// in full. What the rendezvous has decided is taken from its facts, and other facts are inputs
// again, whose decisions are not repeated. The joins of workers are in no fact: Recalled begins a
// generation to which they come again.
func (m Machine) Recall(s State, e events.Event, stored time.Time) State {
	if e.Source != events.ServiceSource(events.ServiceRendezvous) {
		in := events.Input{ID: e.ID, Source: e.Source, Number: e.Number, Time: e.Time, Stored: stored, Trace: e.Trace, Body: e.Body, Nonce: e.ID}
		s, _ = m.Step(s, in, stored)
		return s
	}
	t := &transition{State: &s, now: e.Time}
	switch b := e.Body.(type) {
	case events.RoundOpened:
		if b.Proposed > s.View.Generation && !s.closed() {
			s.View.Proposed, s.View.State, s.View.Cause, s.NoticeAt = b.Proposed, events.RoundStateOpen, b.Cause, e.Time
		}
	case events.RoundSealed:
		t.recallSeal(b)
	case events.RoundParticipantsSet:
		t.recallParticipants(b)
	case events.RoundClosed:
		if !s.closed() {
			t.end(events.JobEnd{Job: b.Job, Reason: b.Reason})
		}
	}
	t.updateView()
	return s
}

func (t *transition) recallSeal(b events.RoundSealed) {
	for _, m := range b.Members {
		if t.member(m.Place) == nil {
			t.addMember(m.Place)
		}
		x := t.member(m.Place)
		x.State, x.Attempt, x.Incarnation, x.Agent = active, m.Attempt, m.Incarnation, m.Agent
		x.Address, x.PID, x.Commit, x.Unsynced, x.RejoinBy = m.Address, m.PID, m.Commit, false, zeroTime
		put(&t.Agents, m.Place.Node, max(t.Agents[m.Place.Node], m.Agent))
		if _, ok := t.Seniority[m.Place.Node]; !ok {
			put(&t.Seniority, m.Place.Node, b.Generation)
		}
	}
	if !b.Cause.Kind.Planned() {
		t.Restarts++
	}
	t.beginGeneration(b.Generation, b.Members)
	t.View.Cause, t.View.NoProgress, t.LastGood = b.Cause, b.NoProgress, max(t.LastGood, b.From)
	for x := range t.all() {
		if x.State == active && t.rank(x) < 0 {
			x.State = pending
		}
	}
}

func (t *transition) recallParticipants(b events.RoundParticipantsSet) {
	if t.Nodes == nil {
		return // job.submitted is missing: the nodes enter again
	}
	x := t.Nodes
	x.Round, x.Complete, x.Abandoned, x.Candidates, x.Deadline = b.Round, true, b.Abandoned, nil, zeroTime
	if b.Closed {
		x.Closed = "it was closed before"
	}
	for _, n := range b.Nodes {
		x.Candidates = append(x.Candidates, Candidate{Node: n, Agent: t.Agents[n], List: participant})
	}
	t.place(events.PlacementSet{Job: b.Job, Places: b.Places, Workers: b.Workers, Spec: t.Spec, LostNodes: b.LostNodes, Reason: b.Reason})
}

// Recalled completes a state that was made of facts: launches have higher revisions than those that
// were published, tokens another nonce, and what runs forms a generation again, in which no place
// has to be given up.
func (s State) Recalled(nonce string, revision uint64) State {
	s.Nonce, s.Revision, s.Published = nonce, max(s.Revision, revision), nil
	if s.View.State == events.RoundStateSealed && !s.Finishing && s.Stopping == nil {
		s.Rebuilt = true
	}
	return s
}

// regain opens the generation after the one that was running when the document was lost.
func (t *transition) regain() {
	if !t.Rebuilt {
		return
	}
	t.Rebuilt = false
	before := t.View.Cause
	c := events.Cause{Kind: events.CauseGrow, Rank: -1, Detail: "the record of the rendezvous was lost, and made again"}
	if t.restart() {
		t.propose(c, 0)
		return
	}
	t.View.Cause, t.Planned, t.PreviousCause = c, true, &before
	t.propose(c, 0)
}
