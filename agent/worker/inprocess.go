package worker

import (
	"cmp"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// inProcess reconciles a launch with the workers of a job under in-process recovery.
func (t *transition) inProcess(j *job) {
	for _, slot := range j.slots() {
		w := j.incarnations[slot]
		if !w.alive() || w.dying {
			continue
		}
		m, ok := j.listed(slot)
		switch {
		case ok && m.Attempt > w.ref.Attempt:
			// The worker was declared dead and replaced: it is fenced and has nothing to save.
			t.kill(w)
			continue
		case !ok:
			t.release(j, w)
		case w.verdict == "":
			w.releasedAt = time.Time{}
		}
		t.pushChanges(j, w, m)
		t.answerJoin(j, w, m, ok)
	}
	for _, m := range j.launch.Members {
		w := j.incarnations[m.Place.Slot]
		if w == nil && m.Incarnation != "" {
			continue // it was started by an earlier agent: the registry will set the next attempt
		}
		if w != nil && (w.alive() || w.ref.Attempt >= m.Attempt) {
			continue
		}
		if !t.mayStart() || !t.gpuIsFree(j, m.Place.Slot) || t.awaitsSpares(j, m) {
			continue
		}
		w = t.newIncarnation(j, m)
		t.start(j, w, m)
	}
}

func (t *transition) newIncarnation(j *job, m events.LaunchMember) *incarnation {
	w := &incarnation{rank: -1, replaces: j.failedIn(m.Place.Slot), ref: tables.WorkerRef{
		Job: j.launch.Job, Place: m.Place, Incarnation: t.newIncarnationID(), Agent: t.s.cfg.Agent, Attempt: m.Attempt,
	}}
	j.incarnations[m.Place.Slot] = w
	return w
}

// release releases a worker whose place is no longer listed. A member of the current generation
// leaves at a commit, by itself; its grace begins when its generation is over.
func (t *transition) release(j *job, w *incarnation) {
	if w.verdict != "" {
		return // its grace has begun already
	}
	if !w.member() && w.join == nil {
		t.stop(j, w, false) // it was never in a generation and has nothing to leave
		return
	}
	l := j.launch
	over := l.Phase == events.PhaseRun && l.Generation > w.ref.Generation
	if w.releasedAt.IsZero() && (over || w.done || !w.member()) {
		w.releasedAt = t.now
	}
	if w.member() && !over && !w.done && (l.Phase == events.PhaseRun || l.Planned) {
		t.pushPlanned(w, workerprotocol.PlaceLeaves, "this worker's place is no longer part of the job")
	}
}

// pushChanges pushes to a member what its launch says about its generation. m is its entry there.
func (t *transition) pushChanges(j *job, w *incarnation, m events.LaunchMember) {
	l, g := j.launch, w.ref.Generation
	if !w.member() {
		return
	}
	if t.s.departing && !w.pushed.leaving {
		w.pushed.leaving = true
		t.do(PushChange{Worker: w.ref.Incarnation, Change: workerprotocol.Change{
			Kind: workerprotocol.ChangeLeaving, Generation: uint64(g), Rank: -1, Reason: t.s.departure.Reason, Until: t.s.departure.Until,
		}})
	}
	switch {
	case l.Phase == events.PhaseRun && l.Generation == g && l.Planned, l.Phase == events.PhasePrepare && l.Generation > g && l.Planned:
		reason := "new workers are ready"
		if l.Cause.Kind.Planned() {
			reason = cmp.Or(l.Cause.Detail, "a planned change: "+string(l.Cause.Kind))
		}
		place := workerprotocol.PlaceStays
		if m.Leaving || m.Place.Node == "" {
			place = workerprotocol.PlaceLeaves
		}
		t.pushPlanned(w, place, reason)
	case l.Phase == events.PhaseRun && l.Generation == g && w.pushed.planned != "":
		w.pushed.planned = ""
		t.pushChange(w, workerprotocol.ChangeUndone, -1, "what was planned is off")
	case l.Phase == events.PhasePrepare && l.Generation > g:
		rank := l.Cause.Rank
		if l.Cause.Kind.Planned() || l.Cause.Place == nil {
			rank = -1
		}
		t.pushLost(w, rank, cmp.Or(l.Cause.Detail, string(l.Cause.Kind), "a new generation is being built"))
	case l.Phase == events.PhaseRun && l.Generation > g:
		t.pushLost(w, -1, l.Generation.String()+" has taken the place of "+g.String())
	}
}

// pushPlanned tells a member that the members will change, and whether it stays. That may change as
// long as it has not left.
func (t *transition) pushPlanned(w *incarnation, place, reason string) {
	if w.pushed.planned == place {
		return
	}
	w.pushed.planned = place
	t.do(PushChange{Worker: w.ref.Incarnation, Change: workerprotocol.Change{
		Kind: workerprotocol.ChangePlanned, Generation: uint64(w.ref.Generation), Rank: -1, Reason: reason, Place: place,
	}})
}

func (t *transition) pushChange(w *incarnation, kind string, rank ident.Rank, reason string) {
	t.do(PushChange{Worker: w.ref.Incarnation, Change: workerprotocol.Change{
		Kind: kind, Generation: uint64(w.ref.Generation), Rank: int(rank), Reason: reason,
	}})
}

func (in NoticeHeard) apply(t *transition) {
	n := in.Notice
	if j := t.s.jobs[n.Exited.Job]; j != nil && n.Rank >= 0 {
		t.pushLostToAll(j, n.Exited.Generation, n.Rank, n.Exited.Detail)
	}
}

func (in AbandonHeard) apply(t *transition) {
	a := in.Abandon
	if j := t.s.jobs[a.Job]; j != nil {
		t.pushLostToAll(j, a.Generation, -1, a.Reason)
		t.examine(j, a.Generation, -1)
	}
}

func (in WorkerJoined) apply(t *transition) {
	j, w := t.s.find(in.Worker)
	switch {
	case w == nil || !w.alive():
		t.do(RefuseJoin{Worker: in.Worker, Code: errcode.Fenced, Reason: "this worker has ended or was never started here"})
	case !j.inProcess():
		t.do(RefuseJoin{Worker: in.Worker, Code: errcode.Invalid, Reason: `the job runs with recovery "restart": its ranks are in the environment; submit it with recovery "in-process" to join from inside`})
	case w.verdict != "":
		t.do(AnswerJoin{Worker: in.Worker, Assignment: workerprotocol.Assignment{Verdict: w.verdict}})
	case ident.Generation(in.Request.Left) < w.left:
		// It was superseded by an earlier arrival. No worker waits for its answer.
	case in.Request.Address == "":
		t.do(RefuseJoin{Worker: in.Worker, Code: errcode.Invalid, Reason: "address is empty: give the host:port on which this worker takes data-plane connections"})
	case w.join != nil && w.join.req.Left == in.Request.Left:
		before := w.join.req
		if before.Unsynced && !in.Request.Unsynced {
			w.join.sendAt, w.join.sentAt = t.now, time.Time{} // the rendezvous' copy is out of date
		}
		w.join.req, w.join.stateFrom = in.Request, 0
		w.join.req.NoticeMS = before.NoticeMS // since the first call
		// A call that the worker has given up may arrive after its replacement.
		w.join.req.Unsynced = in.Request.Unsynced && before.Unsynced
		w.join.req.Holders = max(in.Request.Holders, before.Holders)
	default:
		w.left = max(w.left, ident.Generation(in.Request.Left))
		if c := commit(in.Request.Commit); w.left > 0 {
			w.commit = c // the commit that it has returned to
		}
		if w.left >= w.ref.Generation {
			t.end(w, &w.generation, t.now.Add(-millis(in.Request.NoticeMS)), nil, false)
		}
		w.join = &join{req: in.Request, receivedAt: t.now, sendAt: t.now}
		for _, rank := range in.Request.Accused {
			t.examine(j, ident.Generation(in.Request.Left), ident.Rank(rank))
		}
	}
}

// answerJoin ends a worker's wait if its launch decides it.
func (t *transition) answerJoin(j *job, w *incarnation, m events.LaunchMember, listed bool) {
	if w.join == nil {
		return
	}
	l := j.launch
	switch {
	case l.Phase != events.PhaseRun:
	case !listed:
		t.dismiss(w, workerprotocol.Removed)
	case m.Incarnation == w.ref.Incarnation && (m.Rank >= 0 || m.SpareRank > 0) && uint64(l.Generation) > w.join.req.Left:
		w.join = nil
		if m.Rank < 0 {
			m.Rank = ident.Rank(m.SpareRank)
		}
		if w.ref.Generation != l.Generation {
			t.end(w, &w.generation, t.now, nil, false)
		}
		w.ref.Generation, w.rank, w.localRank, w.world = l.Generation, m.Rank, m.LocalRank, l.World
		w.pushed = pushed{}
		again := w.generation.Self != "" // the answer was lost
		if !again {
			w.trace = cmp.Or(j.formationTrace(), w.process.Self)
			t.beginGeneration(w)
		}
		t.do(AnswerJoin{Worker: w.ref.Incarnation, Assignment: workerprotocol.Assignment{
			Verdict: workerprotocol.Assigned, Generation: uint64(l.Generation), Rank: int(m.Rank), World: l.World,
			LocalRank: m.LocalRank, LocalSize: m.LocalSize, CrossRank: m.CrossRank, CrossSize: m.CrossSize, Spares: l.Spares,
			Token: l.Token, Peers: m.Peers, Trace: w.traceparent(), Cause: string(l.Cause.Kind),
		}})
		if !again {
			t.launchSpan(j, w)
		}
		// A launch that plans a change of this generation was made before this worker received its
		// assignment.
		t.pushChanges(j, w, m)
	default:
		t.answerPrefetch(j, w, m)
	}
}

// answerPrefetch tells a waiting newcomer where to find the state of the current generation.
func (t *transition) answerPrefetch(j *job, w *incarnation, m events.LaunchMember) {
	l, q := j.launch, w.join
	known := max(q.stateFrom, ident.Generation(q.req.Holders))
	if !q.req.Unsynced || m.Rank >= 0 || len(m.Peers) == 0 || known >= l.Generation {
		return
	}
	q.stateFrom = l.Generation
	t.do(AnswerJoin{Worker: w.ref.Incarnation, Assignment: workerprotocol.Assignment{
		Verdict: workerprotocol.Prefetch, Generation: uint64(l.Generation), Rank: -1, World: l.World,
		Token: workerprotocol.StateToken(l.Token), Peers: m.Peers, Trace: w.traceparent(), Cause: string(l.Cause.Kind),
		Expect: expected(l, m),
	}})
}

// expected returns the ranks that a newcomer will have if the members and the newcomers of this
// node form the next generation. It is a forecast, because newcomers of other nodes are not known
// here.
func expected(l events.Launch, m events.LaunchMember) *workerprotocol.Expected {
	first, seated, before := l.World, 0, 0
	e := &workerprotocol.Expected{LocalSize: len(l.Members)}
	for _, other := range l.Members {
		if other.Place.Slot < m.Place.Slot {
			before++
		}
		if other.Rank >= 0 {
			seated++
			first = min(first, int(other.Rank))
			e.CrossRank, e.CrossSize = other.CrossRank, other.CrossSize
		}
	}
	e.Rank, e.World, e.LocalRank = first+before, l.World+len(l.Members)-seated, before
	if seated == 0 { // a new node: the others are assumed to be like it
		e.CrossSize = (e.World + e.LocalSize - 1) / e.LocalSize
		e.CrossRank = e.CrossSize - 1
	}
	return e
}

// dismiss ends a worker's membership for good; the worker should exit by itself.
func (t *transition) dismiss(w *incarnation, verdict string) {
	w.join = nil
	w.verdict = verdict
	if w.releasedAt.IsZero() {
		w.releasedAt = t.now
	}
	t.do(AnswerJoin{Worker: w.ref.Incarnation, Assignment: workerprotocol.Assignment{Verdict: verdict}})
}

// sendJoin makes one call; the age of the notice includes the time that the agent held the request.
func (t *transition) sendJoin(w *incarnation) {
	q := w.join
	switch w.phase {
	case starting:
		return // the join may arrive before ProcessStarted, which has its pid
	case planned:
		if w.address == "" {
			return
		}
		q.req.Address = w.address
	}
	q.sentAt = t.now
	notice := q.req.NoticeMS
	if notice > 0 {
		notice += events.Milliseconds(t.now.Sub(q.receivedAt))
	}
	t.do(SendJoin{Join: events.MemberJoin{
		Job: w.ref.Job, Place: w.ref.Place, Incarnation: w.ref.Incarnation, Agent: t.s.cfg.Agent, Attempt: w.ref.Attempt,
		PID: w.ref.PID, Address: q.req.Address, Left: ident.Generation(q.req.Left), Planned: q.req.Planned,
		Accused: q.req.Accused, Broken: q.req.Broken, NoticeMS: notice, Commit: commit(q.req.Commit), Unsynced: q.req.Unsynced,
	}})
}

func (in JoinAnswered) apply(t *transition) {
	_, w := t.s.find(in.Worker)
	if w == nil || w.join == nil {
		return
	}
	q := w.join
	q.sentAt = time.Time{}
	q.sendAt = t.now.Add(rejoinEvery)
	switch {
	case in.Refused == errcode.Fenced && w.phase != planned:
		t.dismiss(w, workerprotocol.Removed)
	case in.Refused == errcode.Invalid && w.phase != planned:
		w.join = nil
		t.do(RefuseJoin{Worker: in.Worker, Code: in.Refused, Reason: in.Reason})
	case in.Refused != "":
		// The rendezvous is unavailable, or does not know the job yet.
		q.backoff = min(max(2*q.backoff, firstBackoff), lastBackoff)
		q.sendAt = t.now.Add(q.backoff)
	case w.phase == planned:
		q.backoff = 0
	case in.Waiting.Over:
		t.dismiss(w, workerprotocol.Over)
	case in.Waiting.Removed:
		t.dismiss(w, workerprotocol.Removed)
	default:
		q.backoff = 0
	}
}

func commit(c workerprotocol.Commit) tables.Commit {
	return tables.Commit{Generation: ident.Generation(c.Generation), Step: c.Step, Hash: c.Hash}
}
