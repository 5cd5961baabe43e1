package job

import (
	"fmt"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/english"
)

// Superseded reports whether a fact of the placement family is no newer than the last one applied.
// Unnumbered ones are made from the scheduler's view.
func (s State) Superseded(number uint64) bool { return number != 0 && number <= s.Placed.Number }

// supersededPlacement is Superseded for the input, whose number it records.
func (t *transition) supersededPlacement() bool {
	if t.Superseded(t.in.Number) {
		return true
	}
	t.Placed.Number = max(t.Placed.Number, t.in.Number)
	return false
}

func (t *transition) placed(b events.PlacementSet) {
	if t.supersededPlacement() {
		return
	}
	for _, p := range t.Placed.Places {
		t.updateSlot(p, func(n *SlotRecord) { n.Removed = true })
	}
	for _, p := range b.Places {
		t.updateSlot(p, func(n *SlotRecord) { n.Removed = false })
	}
	t.Placed.Places = b.Places
	for _, p := range b.Places {
		if w := t.worker(p); w != nil && t.displaced(w) { // it died in a place that had been given back, before that was known
			t.respawnDisplaced(w)
		}
	}
	if t.View.State == events.JobStateWaiting {
		t.View.Reason = fmt.Sprintf("has %d of the wanted %s, waits for its workers to start", len(b.Places),
			english.Between(t.View.Spec.Workers.Min, t.View.Spec.Workers.Max, "place"))
	}
}

// waiting applies the reason why the job has no places, or fewer than wanted.
func (t *transition) waiting(b events.PlacementWaiting) {
	if !t.supersededPlacement() && t.waitingOrRunning() {
		t.View.Reason = b.Reason
	}
}

// opened applies that a round for a new generation was opened.
func (t *transition) opened(b events.RoundOpened) {
	if b.Proposed <= t.View.Generation || b.Proposed < t.Pending.Proposed {
		return
	}
	t.Pending.Proposed = b.Proposed
	t.Pending.Cause = b.Cause.Kind
	t.Pending.Planned = b.Cause.Kind.Planned() && t.View.Generation > 0 && t.inProcess()
	switch {
	case t.View.State != events.JobStateRunning:
	case t.Pending.Planned:
		t.openIncident(b.Cause) // the generation works on until its next commit and may still become good
	default:
		t.generationBroken(b.Cause)
		t.respawnFinished()
	}
}

// sealed applies the members of a generation. An overtaken seal only completes the history.
func (t *transition) sealed(b events.RoundSealed) {
	v := &t.View
	t.record(b)
	if b.Generation <= v.Generation {
		return
	}
	t.correctFailureSteps(b)
	// The commit in the seal is new if the worker's fact is still on its way.
	if b.From > t.LastGood {
		t.generationGood(events.WorkerReady{WorkerRef: tables.WorkerRef{Generation: b.From}})
	}
	running := t.waitingOrRunning()
	if running && v.Generation > 0 {
		t.generationBroken(b.Cause)
	}
	t.refineCause(b.Cause)
	prev := v.Generation
	v.Generation, v.Slowest = b.Generation, nil
	if v.State == events.JobStateWaiting {
		v.State = events.JobStateRunning
	}
	if running {
		v.Reason = ""
	}
	for _, m := range b.Members {
		t.sealMember(m)
	}
	for i := range v.Workers {
		w := &v.Workers[i]
		if prev > 0 && w.Generation == prev && w.Rank >= 0 {
			w.Rank = -1
			if !w.State.Ended() && !slices.Contains(b.Excluded, w.Place) && !slices.Contains(b.Spares, w.Place) {
				t.updateSlot(w.Place, func(n *SlotRecord) { n.MissingSince = t.now })
			}
		}
	}
	t.beginReports(b)
	t.prune()
	t.countStall(prev)
	if t.ongoing() {
		t.noProgress(b, prev)
	}
	if !t.ongoing() {
		return
	}
	t.Broken = max(t.Broken, b.Generation-1)
	if t.Pending.Proposed <= b.Generation {
		t.Pending = Pending{}
	}
	if running && t.LastGood > 0 {
		t.openIncident(b.Cause)
	}
	if e := t.EarlyReady; e != nil && e.Generation <= b.Generation {
		t.EarlyReady = nil
		if !t.staleReady(*e) {
			t.generationGood(*e)
		}
	}
}

// sealMember makes the worker of a place a member of the current generation. The seal determines
// the incarnation, unless that one has ended before the seal arrived.
func (t *transition) sealMember(m tables.Member) {
	ref := tables.WorkerRef{
		Job: t.View.Job, Place: m.Place, Incarnation: m.Incarnation, Agent: m.Agent, Attempt: m.Attempt,
		Generation: t.View.Generation, PID: m.PID,
	}
	i, ok := t.find(m.Place)
	if !ok {
		t.View.Workers = slices.Insert(t.View.Workers, i, newWorker(ref))
	}
	w := &t.View.Workers[i]
	if w.Incarnation != m.Incarnation {
		dead := slices.Contains(t.Slots[m.Place.String()].Ended, m.Incarnation)
		if dead || (!w.State.Ended() && !newer(ref, w.WorkerRef)) {
			return
		}
		t.endIncarnation(*w)
		*w = newWorker(ref)
	}
	w.Agent = max(w.Agent, m.Agent) // so that a late loss of the node's previous agent does not end it
	if w.State == tables.WorkerStateLost && !t.onLostNode(w) && !t.succeededMeanwhile(w) {
		// It has joined since: its node returned, or it was only slow. It is not counted again.
		t.markRunning(w)
	}
	if w.State == tables.WorkerStateStarting || (w.State == tables.WorkerStateReady && w.Generation < t.View.Generation) {
		w.State = tables.WorkerStateRunning
	}
	if w.State == tables.WorkerStateFailed && t.Slots[m.Place.String()].JudgedIncarnation == w.Incarnation {
		// Its failure was counted before it was known to be a member.
		t.CountedGeneration = max(t.CountedGeneration, t.View.Generation)
	}
	w.Generation, w.Rank, w.Attempt = t.View.Generation, m.Rank, max(w.Attempt, m.Attempt)
	t.updateSlot(m.Place, func(n *SlotRecord) { n.MissingSince = time.Time{} })
}

// generationGood applies that a generation made a good step: the start or the incident is over.
// Under restart recovery a fact without a step means only that the processes have started.
func (t *transition) generationGood(b events.WorkerReady) {
	g := b.Generation
	if g > t.View.Generation {
		if e := t.EarlyReady; e == nil || g > e.Generation || (g == e.Generation && e.Step == 0) {
			t.EarlyReady = &b
		}
		return
	}
	var next *events.GenerationView
	for i := range t.View.Generations {
		v := &t.View.Generations[i]
		v.Ready = v.Ready || v.Generation == g
		if v.Generation > g && next == nil {
			next = v
		}
	}
	if g <= t.LastGood {
		if !t.inProcess() && g == t.View.Generation && b.Step > 0 {
			t.firstStep(b)
		}
		return
	}
	first, atLeast := t.LastGood == 0, false
	t.LastGood, t.View.TimeWithoutStep = g, 0
	if b.Step > 0 && t.inProcess() {
		if !first && !b.Survivor && t.View.Step >= b.Step { // a newcomer cannot know the steps made before
			b.Lost, atLeast = max(b.Lost, t.View.Step-b.Step+1), true
		}
		t.recordStep(g, b.Step)
	}
	if first {
		t.startSpan(g)
	}
	switch {
	case !t.inProcess() && b.Step > 0:
		t.firstStep(b)
	case !t.inProcess():
		t.processesStarted(b)
	case t.View.OpenIncident != nil && g > t.View.OpenIncident.From:
		t.closeIncident(b, atLeast)
	}
	if next != nil && t.View.State == events.JobStateRunning {
		t.openIncident(next.Cause) // it is already broken
	}
}

// participantsSet applies the places of a job with self-registered nodes, which the rendezvous sets
// instead of the scheduler. Once the rendezvous is closed no node can join, so a job with too few
// nodes then fails.
func (t *transition) participantsSet(b events.RoundParticipantsSet) {
	if !t.View.Spec.SelfRegistered() {
		return
	}
	t.placed(events.PlacementSet{Job: b.Job, Places: b.Places, Workers: b.Workers, Spec: t.View.Spec, Reason: b.Reason, LostNodes: b.LostNodes})
	if !b.Closed || len(b.Places) >= t.View.Spec.Workers.Min {
		return
	}
	have := fmt.Sprintf("%d of at least %s", len(b.Nodes), english.Plural(t.View.Spec.Rendezvous.Nodes.Min, "node"))
	switch t.View.State {
	case events.JobStateWaiting:
		if b.Abandoned {
			t.endJob(events.JobStateFailed, errcode.Unavailable, "no generation began: "+b.Reason)
			return
		}
		t.endJob(events.JobStateStopped, "", "the rendezvous was closed before a generation began: "+have+" had come")
	case events.JobStateRunning:
		t.endJob(events.JobStateFailed, errcode.Unavailable, "the rendezvous is closed and only "+have+" are left: "+b.Reason)
	}
}
