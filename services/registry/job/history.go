package job

import (
	"slices"

	"github.com/regroup-io/regroup/events"
)

// Limits of a job's history in its document.
const (
	generationsKept = 256
	membersKept     = 4096 // members in all of the history; older and larger generations keep only their figures
	timingsKept     = 8
	spareWorkers    = 64 // workers kept over twice the wanted number
)

// record writes a seal into the history.
func (t *turn) record(b events.RoundSealed) {
	if b.NoticeMS+b.JudgeMS > 0 { // else it was made from the rendezvous' view, and the fact itself may still come
		t.Timing = slices.DeleteFunc(t.Timing, func(s Timing) bool { return s.Generation == b.Generation })
		t.Timing = append(t.Timing, Timing{Generation: b.Generation, NoticeMS: b.NoticeMS, JudgeMS: b.JudgeMS})
		if over := len(t.Timing) - timingsKept; over > 0 {
			t.Timing = slices.Clone(t.Timing[over:])
		}
	}
	g := &t.View.Generations
	i, found := slices.BinarySearchFunc(*g, b.Generation, byGeneration)
	if found {
		return
	}
	*g = slices.Insert(*g, i, events.GenerationView{
		Generation: b.Generation, World: len(b.Members), Cause: b.Cause,
		Sealed: t.now, Ready: b.Generation == t.LastGood, Members: b.Members,
	})
	if over := len(*g) - generationsKept; over > 0 {
		*g = slices.Clone((*g)[over:])
	}
	members := 0
	for i := len(*g) - 1; i >= 0; i-- {
		members += len((*g)[i].Members)
		if members > membersKept {
			(*g)[i].Members = nil
		}
	}
}

// prune forgets ended workers of places that the job no longer has, once nodes have come and gone for long.
func (t *turn) prune() {
	if len(t.View.Workers) <= 2*t.View.Spec.Workers.Max+spareWorkers {
		return
	}
	t.View.Workers = slices.DeleteFunc(t.View.Workers, func(w events.WorkerView) bool {
		over := w.State.Ended() && !t.member(&w) && !t.hasPlace(w.Place)
		if over {
			delete(t.Notes, w.Place.String())
			delete(t.Nodes, w.Place.Node)
		}
		return over
	})
}
