package job

import (
	"fmt"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
)

// Overtaken tells whether a fact of the placement family is no newer than what is known. Unnumbered ones are made from the
// scheduler's own view.
func (s State) Overtaken(number uint64) bool { return number != 0 && number <= s.Placed.Number }

// overtaken is Overtaken of the input, which is what is known from then on.
func (t *turn) overtaken() bool {
	if t.Overtaken(t.in.Number) {
		return true
	}
	t.Placed.Number = max(t.Placed.Number, t.in.Number)
	return false
}

// placed takes in which places the job has.
func (t *turn) placed(b events.PlacementSet) {
	if t.overtaken() {
		return
	}
	for _, p := range t.Placed.Places {
		t.note(p, func(n *Note) { n.Gone = true })
	}
	for _, p := range b.Places {
		t.note(p, func(n *Note) { n.Gone = false })
	}
	t.Placed.Places = b.Places
	for _, p := range b.Places {
		if w := t.worker(p); w != nil && t.stranded(w) { // it died in a place that was given again before: it was only not known yet
			t.unstrand(w)
		}
	}
	if t.View.State == events.JobStateWaiting {
		t.View.Reason = fmt.Sprintf("has %d of the wanted %d to %d places, waits for its workers to start", len(b.Places),
			t.View.Spec.Workers.Min, t.View.Spec.Workers.Max)
	}
}

// waiting takes in why the job has no places, or fewer than wanted.
func (t *turn) waiting(b events.PlacementWaiting) {
	if !t.overtaken() && (t.View.State == events.JobStateWaiting || t.View.State == events.JobStateRunning) {
		t.View.Reason = b.Reason
	}
}

// opened takes in that a new generation is being agreed on.
func (t *turn) opened(b events.RoundOpened) {
	if b.Proposed <= t.View.Generation || b.Proposed < t.Pending.Proposed {
		return
	}
	t.Pending.Proposed = b.Proposed
	t.Pending.Cause = b.Cause.Kind
	t.Pending.Planned = b.Cause.Kind.Planned() && t.View.Generation > 0 && t.inProcess()
	switch {
	case t.View.State != events.JobStateRunning:
	case t.Pending.Planned:
		t.open(b.Cause) // the generation works on until its next commit, and may yet become good
	default:
		t.broke(b.Cause)
		t.startAgain()
	}
}

// sealed takes in who is in a generation. One that is overtaken by a newer seal only completes the history.
func (t *turn) sealed(b events.RoundSealed) {
	v := &t.View
	t.record(b)
	if b.Generation <= v.Generation {
		return
	}
	t.settled(b)
	// What the rendezvous heard of the generation before is news if that worker's fact is still on its way.
	if b.From > t.LastGood {
		t.good(events.WorkerReady{WorkerRef: events.WorkerRef{Generation: b.From}})
	}
	running := v.State == events.JobStateWaiting || v.State == events.JobStateRunning
	if running && v.Generation > 0 {
		t.broke(b.Cause)
	}
	t.learn(b.Cause)
	prev := v.Generation
	v.Generation, v.Slowest = b.Generation, nil
	if v.State == events.JobStateWaiting {
		v.State = events.JobStateRunning
	}
	if running {
		v.Reason = ""
	}
	for _, m := range b.Members {
		t.seat(m)
	}
	for i := range v.Workers {
		w := &v.Workers[i]
		if prev > 0 && w.Generation == prev && w.Rank >= 0 {
			w.Rank = -1
			if !w.State.Ended() && !slices.Contains(b.Excluded, w.Place) {
				t.note(w.Place, func(n *Note) { n.Behind = t.now })
			}
		}
	}
	t.listen(b)
	t.prune()
	t.hung(prev)
	if t.live() {
		t.noProgress(b, prev)
	}
	if !t.live() {
		return
	}
	t.Broken = max(t.Broken, b.Generation-1)
	if t.Pending.Proposed <= b.Generation {
		t.Pending = Pending{}
	}
	if running && t.LastGood > 0 {
		t.open(b.Cause)
	}
	if e := t.Early; e != nil && e.Generation <= b.Generation {
		t.Early = nil
		if !t.zombie(*e) {
			t.good(*e)
		}
	}
}

// seat makes a member of the current generation out of a place's worker. The seal decides which life that is, unless that
// life has ended before the seal was heard.
func (t *turn) seat(m events.Member) {
	ref := events.WorkerRef{
		Job: t.View.Job, Place: m.Place, Incarnation: m.Incarnation, Agent: m.Agent, Attempt: m.Attempt,
		Generation: t.View.Generation, PID: m.PID,
	}
	i, ok := t.find(m.Place)
	if !ok {
		t.View.Workers = slices.Insert(t.View.Workers, i, fresh(ref))
	}
	w := &t.View.Workers[i]
	if w.Incarnation != m.Incarnation {
		dead := slices.Contains(t.Notes[m.Place.String()].Ended, m.Incarnation)
		if dead || (!w.State.Ended() && !newer(ref, w.WorkerRef)) {
			return
		}
		t.bury(*w)
		*w = fresh(ref)
	}
	w.Agent = max(w.Agent, m.Agent) // so that a late loss of the node's agent before does not end it
	if w.State == events.WorkerStateLost && !t.nodeIsGone(w) && !t.endedWell(w) {
		// It has joined since: the node came back, or the one left behind was only slow. It is not charged again.
		t.revive(w)
	}
	if w.State == events.WorkerStateStarting || (w.State == events.WorkerStateReady && w.Generation < t.View.Generation) {
		w.State = events.WorkerStateRunning
	}
	if w.State == events.WorkerStateFailed && t.Notes[m.Place.String()].Charged == w.Incarnation {
		t.Charged = max(t.Charged, t.View.Generation) // what breaks this generation was charged before it was known to be in it
	}
	w.Generation, w.Rank, w.Attempt = t.View.Generation, m.Rank, max(w.Attempt, m.Attempt)
	t.note(m.Place, func(n *Note) { n.Behind = time.Time{} })
}

// good takes in that a generation made a good step: the start or the incident is over. Under restart recovery the processes
// have only started if no step is said.
func (t *turn) good(b events.WorkerReady) {
	g := b.Generation
	if g > t.View.Generation {
		if e := t.Early; e == nil || g > e.Generation || (g == e.Generation && e.Step == 0) {
			t.Early = &b
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
			t.makesSteps(b)
		}
		return
	}
	first, atLeast := t.LastGood == 0, false
	t.LastGood, t.View.TimeWithoutStep = g, 0
	if b.Step > 0 && t.inProcess() {
		if !first && !b.Survivor && t.View.Step >= b.Step { // it cannot know what others had made before it
			b.Lost, atLeast = max(b.Lost, t.View.Step-b.Step+1), true
		}
		t.step(g, b.Step)
	}
	if first {
		t.startSpan(g)
	}
	switch {
	case !t.inProcess() && b.Step > 0:
		t.makesSteps(b)
	case !t.inProcess():
		t.startedAgain(b)
	case t.View.OpenIncident != nil && g > t.View.OpenIncident.From:
		t.close(b, atLeast)
	}
	if next != nil && t.View.State == events.JobStateRunning {
		t.open(next.Cause) // it is broken already
	}
}
