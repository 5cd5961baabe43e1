package job

import (
	"fmt"
	"iter"
	"slices"
	"sort"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
)

// endedKept is the number of ended incarnations kept per place. Older ones are fenced by their
// attempt and generation.
const endedKept = 8

// verdict is the decision about a dead worker.
type verdict string

const (
	respawned     verdict = "respawned"
	respawnDenied verdict = "respawn-denied"
)

// workers yields the newest worker of each place.
func (s *State) workers() iter.Seq[*tables.WorkerView] {
	return func(yield func(*tables.WorkerView) bool) {
		for i := range s.View.Workers {
			if !yield(&s.View.Workers[i]) {
				return
			}
		}
	}
}

// worker returns the newest worker of a place, or nil.
func (t *transition) worker(p ident.Place) *tables.WorkerView {
	i, ok := t.find(p)
	if !ok {
		return nil
	}
	return &t.View.Workers[i]
}

func (t *transition) find(p ident.Place) (int, bool) {
	w := t.View.Workers
	i := sort.Search(len(w), func(i int) bool { return w[i].Place.Compare(p) >= 0 })
	return i, i < len(w) && w[i].Place == p
}

// workerFor returns the worker that a fact is about. It creates or replaces it if the fact is the
// first of a newer incarnation, and returns nil if the fact is of an old one.
func (t *transition) workerFor(r tables.WorkerRef) *tables.WorkerView {
	i, ok := t.find(r.Place)
	if !ok {
		t.View.Workers = slices.Insert(t.View.Workers, i, tables.WorkerView{})
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

// beginIncarnation starts the record of an incarnation, and ends it at once if its node is gone.
func (t *transition) beginIncarnation(w *tables.WorkerView, r tables.WorkerRef) *tables.WorkerView {
	*w = newWorker(r)
	if r.Agent != "" && t.onLostNode(w) {
		t.endWorker(w, tables.WorkerStateLost, "its node "+string(r.Place.Node)+" was lost", nil)
	}
	return w
}

// newWorker returns an incarnation of which only the reference is known.
func newWorker(r tables.WorkerRef) tables.WorkerView {
	r.Generation = 0
	return tables.WorkerView{WorkerRef: r, Rank: -1, State: tables.WorkerStateStarting}
}

// newer reports whether incarnation a of a place began after b: under a newer agent, or as a later
// attempt, or for a later generation (restart recovery starts processes for each), or by its ULID,
// which the same node made.
func newer(a, b tables.WorkerRef) bool {
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

// endIncarnation records that an incarnation is over, so that later facts about it change nothing.
func (t *transition) endIncarnation(w tables.WorkerView) {
	t.updateSlot(w.Place, func(n *SlotRecord) {
		n.MissingSince = time.Time{}
		if !slices.Contains(n.Ended, w.Incarnation) {
			n.Ended = append(n.Ended, w.Incarnation)
		}
		n.Ended = newest(n.Ended, endedKept)
	})
}

func (t *transition) updateSlot(p ident.Place, change func(*SlotRecord)) {
	if t.Slots == nil {
		t.Slots = map[string]SlotRecord{}
	}
	n := t.Slots[p.String()]
	change(&n)
	t.Slots[p.String()] = n
}

// member reports whether a worker is part of the current generation.
func (t *transition) member(w *tables.WorkerView) bool {
	return w.Rank >= 0 && w.Generation == t.View.Generation && t.View.Generation > 0
}

// running reports whether any worker may still run.
func (t *transition) running() bool {
	return slices.ContainsFunc(t.View.Workers, func(w tables.WorkerView) bool { return !w.State.Ended() })
}

// hasPlace reports whether the job has the place. A place that no placement has named yet counts as
// the job's: families overtake each other, and a worker's exit may arrive before its placement.
func (t *transition) hasPlace(p ident.Place) bool { return !t.Slots[p.String()].Removed }

// expireMissing ends workers that a generation was sealed without and whose exit or lost node has
// not explained it: they hang. Together they are one failure, and they are replaced.
func (t *transition) expireMissing() {
	var behind []*tables.WorkerView
	for w := range t.workers() {
		since := t.Slots[w.Place.String()].MissingSince
		if since.IsZero() || t.now.Before(since.Add(missingTimeout)) {
			continue
		}
		t.updateSlot(w.Place, func(n *SlotRecord) { n.MissingSince = time.Time{} })
		if t.View.State == events.JobStateRunning && !w.State.Ended() && t.hasPlace(w.Place) {
			t.endWorker(w, tables.WorkerStateLost, fmt.Sprintf("did not come back from generation %s and said nothing for %s", w.Generation, missingTimeout), nil)
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
