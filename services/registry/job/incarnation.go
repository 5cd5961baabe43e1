package job

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/regroup-io/regroup/events"
)

// endedKept is how many ended lives of a place are remembered. Older ones are fenced by their
// attempt and generation.
const endedKept = 8

// verdict is what was decided about a dead worker.
type verdict string

// Verdicts.
const (
	respawned     verdict = "respawned"
	respawnDenied verdict = "blamed"
)

// worker returns the newest worker of a place, or nil.
func (t *transition) worker(p events.Place) *events.WorkerView {
	i, ok := t.find(p)
	if !ok {
		return nil
	}
	return &t.View.Workers[i]
}

func (t *transition) find(p events.Place) (int, bool) {
	w := t.View.Workers
	i := sort.Search(len(w), func(i int) bool { return !w[i].Place.Less(p) })
	return i, i < len(w) && w[i].Place == p
}

// workerFor returns the worker that a fact is about, made or renewed if the fact is the first of a
// newer life, and nil if the fact is of an old life.
func (t *transition) workerFor(r events.WorkerRef) *events.WorkerView {
	i, ok := t.find(r.Place)
	if !ok {
		t.View.Workers = slices.Insert(t.View.Workers, i, events.WorkerView{})
		return t.beginIncarnation(&t.View.Workers[i], r)
	}
	w := &t.View.Workers[i]
	switch {
	case w.Incarnation == r.Incarnation:
		w.Agent = max(w.Agent, r.Agent)
		w.Attempt = max(w.Attempt, r.Attempt)
		if r.PID != 0 {
			w.PID = r.PID
		}
		return w
	case slices.Contains(t.Slots[r.Place.String()].Ended, r.Incarnation) || !newer(r, w.WorkerRef):
		return nil
	}
	t.endIncarnation(*w)
	return t.beginIncarnation(w, r)
}

// beginIncarnation starts the record of a life, or ends it at once if its node is known to be gone.
func (t *transition) beginIncarnation(w *events.WorkerView, r events.WorkerRef) *events.WorkerView {
	*w = newWorker(r)
	if r.Agent != "" && t.onLostNode(w) {
		t.endWorker(w, events.WorkerStateLost, "its node "+string(r.Place.Node)+" was lost", nil)
	}
	return w
}

// newWorker is a life of which only its name is known.
func newWorker(r events.WorkerRef) events.WorkerView {
	r.Generation = 0
	return events.WorkerView{WorkerRef: r, Rank: -1, State: events.WorkerStateStarting}
}

// newer tells whether life a of a place began after life b: under a newer agent, or as a later
// attempt, or for a later generation (restart recovery makes processes anew for each), or by its
// ULID, which the same node made.
func newer(a, b events.WorkerRef) bool {
	switch {
	case a.Agent != b.Agent && a.Agent != "" && b.Agent != "":
		return a.Agent > b.Agent
	case a.Attempt != b.Attempt:
		return a.Attempt > b.Attempt
	case a.Generation != b.Generation && a.Generation != 0 && b.Generation != 0:
		return a.Generation > b.Generation
	}
	return a.Incarnation > b.Incarnation
}

// endIncarnation remembers that a life is over, so that what is still said about it changes
// nothing.
func (t *transition) endIncarnation(w events.WorkerView) {
	t.updateSlot(w.Place, func(n *SlotRecord) {
		n.MissingSince = time.Time{}
		if !slices.Contains(n.Ended, w.Incarnation) {
			n.Ended = append(n.Ended, w.Incarnation)
		}
		if len(n.Ended) > endedKept {
			n.Ended = slices.Clone(n.Ended[len(n.Ended)-endedKept:])
		}
	})
}

// updateSlot changes what is remembered about a place.
func (t *transition) updateSlot(p events.Place, change func(*SlotRecord)) {
	if t.Slots == nil {
		t.Slots = map[string]SlotRecord{}
	}
	n := t.Slots[p.String()]
	change(&n)
	t.Slots[p.String()] = n
}

// member tells whether a worker is part of the current generation.
func (t *transition) member(w *events.WorkerView) bool {
	return w.Rank >= 0 && w.Generation == t.View.Generation && t.View.Generation > 0
}

// running tells whether any worker may still run.
func (t *transition) running() bool {
	return slices.ContainsFunc(t.View.Workers, func(w events.WorkerView) bool { return !w.State.Ended() })
}

// hasPlace tells whether the job still has the place. A place that no placement has named yet
// counts as held: families overtake each other, and a worker's end may be heard before its
// beginning.
func (t *transition) hasPlace(p events.Place) bool { return !t.Slots[p.String()].Removed }

// expireMissing judges workers that a generation was sealed without, when neither their exit nor
// the loss of their node has explained it: they hang. Together they are one failure, and are
// replaced.
func (t *transition) expireMissing() {
	var behind []*events.WorkerView
	for i := range t.View.Workers {
		w := &t.View.Workers[i]
		since := t.Slots[w.Place.String()].MissingSince
		if since.IsZero() || t.now.Before(since.Add(missingTimeout)) {
			continue
		}
		t.updateSlot(w.Place, func(n *SlotRecord) { n.MissingSince = time.Time{} })
		if t.View.State == events.JobStateRunning && !w.State.Ended() && t.hasPlace(w.Place) {
			t.endWorker(w, events.WorkerStateLost, fmt.Sprintf("did not come back from generation %s and said nothing for %s", w.Generation, missingTimeout), nil)
			behind = append(behind, w)
		}
	}
	if len(behind) == 0 || !t.countFailure(behind[0], behind[0].Generation, t.silentFailure(events.FailureHang, true)) {
		return
	}
	for _, w := range behind {
		t.respawn(w)
	}
}
