package plan

import (
	"github.com/regroup-io/regroup/events"
)

// NodeInput returns a fact with everything in the record of a node; number is that of the newest
// fact about it.
func NodeInput(v events.NodeView, number uint64) events.Input {
	in, f := events.Input{Number: number}, v.Fact()
	switch {
	case v.State == events.NodeStateLost:
		in.Body = events.NodeLost{NodeFact: f}
	case v.State == events.NodeStateLeft:
		in.Body = events.NodeLeft{NodeFact: f}
	case v.Draining:
		in.Body = events.NodeDraining{NodeFact: f}
	case v.State == events.NodeStateSuspected:
		in.Body = events.NodeSuspected{NodeFact: f}
	default:
		in.Body = events.NodeJoined{NodeFact: f}
	}
	return in
}

// Placed is a job that has not ended, from its record, and the newest fact about its places; nil =
// there is none, or they were released.
type Placed struct {
	Submitted events.JobSubmitted
	Number    uint64 // of the newest fact about the job
	Set       *events.PlacementSet
}

// Recalled returns a pool that was lost, made of the records of nodes, as facts, and of jobs in the
// order of their submission. Every job keeps its places. The next input assigns what is free.
func Recalled(nodes []events.Input, jobs []Placed) State {
	m := Machine{}
	s := m.New("")
	for _, in := range nodes {
		s, _ = m.Apply(s, in, in.Time)
	}
	for _, j := range jobs {
		if j.Submitted.Spec.SelfRegistered() {
			continue
		}
		t := transition{s: &s}
		row := t.add(j.Submitted.Job)
		if row == nil {
			break // the rest is added when the scheduler reconciles
		}
		row.describe(j.Submitted.Spec)
		row.Workers = j.Number
		t.setWanted(j.Submitted.Job, j.Submitted.Spec.Workers)
		if j.Set == nil {
			continue
		}
		row.Placed, row.PublishedWorkers = len(j.Set.Places) > 0, j.Set.Workers
		row.Returning = row.Placed && len(j.Set.LostNodes) > 0 && len(j.Set.Places) < j.Set.Workers.Min
		view := s.View.Jobs[j.Submitted.Job]
		view.Places = j.Set.Places
		s.View.Jobs[j.Submitted.Job] = view
	}
	s.dirty, s.lost, s.touched, s.index = false, nil, nil, nil
	return s
}
