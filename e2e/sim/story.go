package sim

import (
	"fmt"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
)

// brief summarises a body for the log.
func brief(b events.Body) string {
	switch b := b.(type) {
	case events.PlacementSet:
		return fmt.Sprint(b.Places, " ", b.Reason)
	case events.PlacementWaiting:
		return b.Reason
	case events.RoundOpened:
		return fmt.Sprint(b.Proposed, " ", b.Cause.Kind, " ", b.Cause.Detail, " expects ", b.Expected)
	case events.RoundSealed:
		var m []string
		for _, x := range b.Members {
			m = append(m, fmt.Sprintf("%s#%d@%d.%d", x.Place, x.Attempt, uint64(x.Commit.Generation), x.Commit.Step))
		}
		return b.Generation.String() + " " + strings.Join(m, " ")
	case events.WorkerExited:
		return fmt.Sprintf("%s done %t asked %t %s", which(b.WorkerRef), b.Done, b.Asked, b.Detail)
	case events.WorkerStarted:
		return which(b.WorkerRef)
	case events.WorkerReady:
		return fmt.Sprintf("%s rank %d", which(b.WorkerRef), b.Rank)
	case events.WorkerDone:
		return which(b.WorkerRef)
	case events.JobFailureCounted:
		return fmt.Sprintf("%s %s in %s after step %d", b.Kind, b.Place, b.Generation, b.Step)
	case events.JobStalled:
		return fmt.Sprintf("%s %s", b.Generation, b.Detail)
	case events.JobProgressed:
		return fmt.Sprintf("%s step %d", b.Generation, b.Step)
	case events.RoundMissed:
		var m []ident.Place
		for _, x := range b.Missing {
			m = append(m, x.Place)
		}
		return fmt.Sprint(b.Proposed, " ", m)
	case events.JobDelayed:
		return fmt.Sprintf("%s %g ms before attempt %d of %d", b.Place, b.WaitMS, b.Attempt, b.Of)
	case events.RoundDelayed:
		return fmt.Sprintf("%s %g ms before attempt %d of %d", b.Proposed, b.WaitMS, b.Attempt, b.Of)
	case events.JobRespawned:
		return fmt.Sprintf("%s attempt %d", b.Place, b.Attempt)
	case events.JobRespawnDenied:
		return fmt.Sprintf("%s %s", b.Place, b.Reason)
	case events.NodeQuarantined:
		return slotPrefix(b.Slot) + b.Reason
	case events.NodeReleased:
		return slotPrefix(b.Slot) + b.Reason
	case events.NodeChanged:
		return b.Reason
	case events.JobSucceeded:
		return b.Reason
	case events.JobFailed:
		return b.Reason
	case events.JobStopped:
		return b.Reason
	case events.JobStopping:
		return b.Reason
	case events.JobScaled:
		return fmt.Sprint(b.Workers)
	case events.JobScale:
		return fmt.Sprint(b.Job, " ", b.Workers)
	case events.JobStop:
		return fmt.Sprint(b.Job, " now ", b.Now)
	case events.JobSubmit:
		return fmt.Sprint(b.Spec.Name, " ", b.Spec.Workers, " ", b.Spec.Recovery)
	case events.NodeDrain:
		return fmt.Sprint(b.Node, " undo ", b.Undo)
	case events.IncidentOpened:
		return fmt.Sprint(b.Incident, " from ", b.From, " ", b.Cause.Kind)
	case events.IncidentClosed:
		return fmt.Sprintf("%d to %s %.0f ms", b.Incident, b.To, b.TotalMS)
	case events.NodeLost:
		return string(b.Incarnation) + " " + b.Reason
	case events.NodeJoined:
		return string(b.Incarnation) + " " + b.Reason
	}
	return ""
}

func which(w tables.WorkerRef) string {
	return fmt.Sprintf("%s#%d %s", w.Place, w.Attempt, w.Generation)
}

func slotPrefix(s *ident.Slot) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("slot %d ", *s)
}
