package rendezvous

import (
	"context"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/rendezvous/round"
)

// route says which jobs an input concerns: its own, or all that have a seat on its node.
func route(in events.Input, known func() []string, state func(string) (round.State, bool)) []string {
	switch b := in.Body.(type) {
	case events.PlacementSet:
		return one(b.Job)
	case events.MemberJoin:
		return one(b.Job)
	case events.PeersQuery:
		return one(b.Job)
	case events.Notice:
		return one(b.Exited.Job)
	case events.WorkerExited:
		return one(b.Job)
	case events.WorkerReady:
		return one(b.Job)
	case events.JobRespawned:
		return one(b.Job)
	case events.JobBlamed:
		return one(b.Job)
	case events.JobFinishing:
		return one(b.Job)
	case events.JobStopping:
		return one(b.Job)
	case events.JobSucceeded:
		return one(b.Job)
	case events.JobFailed:
		return one(b.Job)
	case events.JobStopped:
		return one(b.Job)
	case events.NodeJoined:
		return on(b.Node, known, state)
	case events.NodeLost:
		return on(b.Node, known, state)
	case events.NodeLeft:
		return on(b.Node, known, state)
	case events.Heartbeat:
		return on(b.Node, known, state)
	}
	return nil
}

func one(j events.JobID) []string { return []string{string(j)} }

func on(n events.NodeID, known func() []string, state func(string) (round.State, bool)) []string {
	var jobs []string
	for _, job := range known() {
		if s, ok := state(job); ok && s.Concerns(n) {
			jobs = append(jobs, job)
		}
	}
	return jobs
}

// reconcile takes in what the other judges show, in case a fact of theirs was missed: lost nodes and ended jobs.
func reconcile(ctx context.Context, p events.Ports, emit func(events.Input)) error {
	err := events.EachView(ctx, p.Buckets.Bucket(events.BucketJobs), func(_ string, v events.JobView) {
		end := events.JobEnd{Job: v.Job, Reason: v.Reason, Code: v.Code}
		switch v.State {
		case events.JobHasSucceed:
			emit(events.Input{Body: events.JobSucceeded{JobEnd: end}})
		case events.JobHasFailed:
			emit(events.Input{Body: events.JobFailed{JobEnd: end}})
		case events.JobHasStopped:
			emit(events.Input{Body: events.JobStopped{JobEnd: end}})
		}
	})
	if err != nil {
		return err
	}
	return events.EachView(ctx, p.Buckets.Bucket(events.BucketNodes), func(_ string, v events.NodeView) {
		f := events.NodeFact{Node: v.Node, Incarnation: v.Incarnation, Slots: v.Slots, Address: v.Address, Reason: v.Reason}
		switch v.State {
		case events.NodeGone:
			emit(events.Input{Body: events.NodeLost{NodeFact: f}})
		case events.NodeDeparted:
			emit(events.Input{Body: events.NodeLeft{NodeFact: f}})
		default:
			emit(events.Input{Body: events.NodeJoined{NodeFact: f}})
		}
	})
}
