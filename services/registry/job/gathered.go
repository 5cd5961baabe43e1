package job

import (
	"fmt"

	"github.com/regroup-io/regroup/events"
)

// gathered takes in the places of a job whose nodes come by themselves: the rendezvous says so instead of the scheduler. Once
// it is closed nobody can come any more, so a job that has too few nodes then has no future.
func (t *turn) gathered(b events.RoundParticipantsSet) {
	if !t.View.Spec.External() {
		return
	}
	t.placed(events.PlacementSet{Job: b.Job, Places: b.Places, Workers: b.Workers, Spec: t.View.Spec, Reason: b.Reason, LostNodes: b.LostNodes})
	if !b.Closed || len(b.Places) >= t.View.Spec.Workers.Min {
		return
	}
	have := fmt.Sprintf("%d of at least %d nodes", len(b.Nodes), t.View.Spec.Rendezvous.Nodes.Min)
	switch t.View.State {
	case events.JobStateWaiting:
		if b.Abandoned {
			t.end(events.JobStateFailed, events.Unavailable, "no generation began: "+b.Reason)
			return
		}
		t.end(events.JobStateStopped, "", "the rendezvous was closed before a generation began: "+have+" had come")
	case events.JobStateRunning:
		t.end(events.JobStateFailed, events.Unavailable, "the rendezvous is closed and only "+have+" are left: "+b.Reason)
	}
}
