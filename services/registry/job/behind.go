package job

import (
	"fmt"
	"time"

	"github.com/regroup-io/regroup/events"
)

// leftBehind judges workers that a generation was sealed without, when neither their exit nor the loss of their node
// has explained it: they hang. Together they are one failure, and are replaced.
func (t *turn) leftBehind() {
	var behind []*events.WorkerView
	for i := range t.View.Workers {
		w := &t.View.Workers[i]
		since := t.Notes[w.Place.String()].Behind
		if since.IsZero() || t.now.Before(since.Add(behindFor)) {
			continue
		}
		t.note(w.Place, func(n *Note) { n.Behind = time.Time{} })
		if t.View.State == events.JobStateRunning && !w.State.Ended() && t.hasPlace(w.Place) {
			t.end1(w, events.WorkerStateLost, fmt.Sprintf("did not come back from generation %s and said nothing for %s", w.Generation, behindFor), nil)
			behind = append(behind, w)
		}
	}
	if len(behind) == 0 || !t.charge(behind[0], behind[0].Generation, t.silentFault(events.FailureHang, true)) {
		return
	}
	for _, w := range behind {
		t.respawn(w)
	}
}
