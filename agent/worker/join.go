package worker

import (
	"time"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/events"
)

// sendJoin makes one call; the age of the notice grows while the agent holds the request.
func (t *turn) sendJoin(j *job, w *life) {
	q := w.join
	switch w.phase {
	case starting:
		return // it can be faster than the word that it runs, which names its pid
	case planned:
		if w.address == "" {
			return
		}
		q.req.Address = w.address
	}
	q.sent = t.now
	notice := q.req.NoticeMS
	if notice > 0 {
		notice += events.Milliseconds(t.now.Sub(q.arrived))
	}
	t.do(SendJoin{Join: events.MemberJoin{
		Job: w.ref.Job, Place: w.ref.Place, Incarnation: w.ref.Incarnation, Agent: t.s.cfg.Agent, Attempt: w.ref.Attempt,
		PID: w.ref.PID, Address: q.req.Address, Left: events.Generation(q.req.Left), Planned: q.req.Planned,
		Accused: q.req.Accused, Broken: q.req.Broken, NoticeMS: notice, Commit: commit(q.req.Commit), Unsynced: q.req.Cold,
	}})
}

func (t *turn) joinAnswered(in JoinAnswered) {
	_, w := t.s.find(in.Worker)
	if w == nil || w.join == nil {
		return
	}
	q := w.join
	q.sent = time.Time{}
	q.next = t.now.Add(rejoinEvery)
	switch {
	case in.Refused == events.Fenced && w.phase != planned:
		t.dismiss(w, verdictRemoved)
	case in.Refused == events.Invalid && w.phase != planned:
		w.join = nil
		t.do(RefuseJoin{Worker: in.Worker, Code: in.Refused, Reason: in.Reason})
	case in.Refused != "":
		// The rendezvous is away, or does not know the job yet.
		q.backoff = min(max(2*q.backoff, firstBackoff), lastBackoff)
		q.next = t.now.Add(q.backoff)
	case w.phase == planned:
		q.backoff = 0
	case in.Waiting.Over:
		t.dismiss(w, wire.Over)
	case in.Waiting.Removed:
		t.dismiss(w, verdictRemoved)
	default:
		q.backoff = 0
	}
}

func commit(c wire.Commit) events.Commit {
	return events.Commit{Generation: events.Generation(c.Generation), Step: c.Step, Hash: c.Hash}
}
