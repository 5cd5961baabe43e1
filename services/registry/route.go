package registry

import (
	"context"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/loop"
	"github.com/regroup-io/regroup/services/registry/job"
)

// route names the jobs that an input concerns: its own, or all that have workers or places on its node.
func route(in events.Input, known func() []string, state func(string) (job.State, bool)) []string {
	switch b := in.Body.(type) {
	case events.JobSubmit:
		return one(jobOf(events.Event{ID: in.ID, Source: in.Source, Body: b}))
	case events.JobScale:
		return one(b.Job)
	case events.JobStop:
		return one(b.Job)
	case events.PlacementSet:
		return one(b.Job)
	case events.PlacementWaiting:
		return one(b.Job)
	case events.RoundOpened:
		return one(b.Job)
	case events.RoundSealed:
		return one(b.Job)
	case events.WorkerStarted:
		return one(b.Job)
	case events.WorkerReady:
		return one(b.Job)
	case events.WorkerDone:
		return one(b.Job)
	case events.WorkerExited:
		return one(b.Job)
	case events.NodeJoined:
		return on(b.Node, known, state)
	case events.NodeLost:
		return on(b.Node, known, state)
	case events.NodeLeft:
		return on(b.Node, known, state)
	}
	return nil
}

// one is a route to one job, or to none if the id is no key.
func one(id events.JobID) []string {
	if id.Check() != nil {
		return nil
	}
	return []string{string(id)}
}

func on(n events.NodeID, known func() []string, state func(string) (job.State, bool)) []string {
	var jobs []string
	for _, id := range known() {
		if s, ok := state(id); ok && s.Concerns(n) {
			jobs = append(jobs, id)
		}
	}
	return jobs
}

// reconcile takes in what the other judges show, in case a fact of theirs was missed. Views are whole, so repeating them
// is harmless: the machine drops what it knows.
func reconcile(ctx context.Context, buckets events.Buckets, emit loop.Emit) error {
	say := func(b events.Body) { emit(events.Input{Body: b}) }
	live := map[events.JobID]events.JobView{}
	err := events.EachView(ctx, buckets.Bucket(events.BucketJobs), func(_ string, v events.JobView) {
		if v.State != "" && !v.State.Terminal() {
			live[v.Job] = v
		}
	})
	if err != nil || len(live) == 0 {
		return err
	}
	err = events.EachView(ctx, buckets.Bucket(events.BucketPlacements), func(_ string, pool events.PoolView) {
		for id, row := range pool.Jobs {
			v, ok := live[id]
			switch {
			case !ok:
			case len(row.Places) > 0:
				say(events.PlacementSet{Job: id, Places: row.Places, Workers: row.Workers, Spec: v.Spec, Reason: row.Waiting})
			case row.Waiting != "":
				say(events.PlacementWaiting{Job: id, Reason: row.Waiting, Need: row.Workers.Min})
			}
		}
	})
	if err != nil {
		return err
	}
	err = events.EachView(ctx, buckets.Bucket(events.BucketRounds), func(_ string, r events.RoundView) {
		v, ok := live[r.Job]
		if !ok {
			return
		}
		if r.Generation > v.Generation {
			// The times of the round are not in the view: an incident that ends with it is told without them.
			say(events.RoundSealed{Job: r.Job, Generation: r.Generation, Members: r.Members, Cause: r.Cause})
		}
		if r.Proposed > max(r.Generation, v.Generation) {
			say(events.RoundOpened{Job: r.Job, Proposed: r.Proposed, Expected: r.Expected, Cause: r.Cause})
		}
	})
	if err != nil {
		return err
	}
	return events.EachView(ctx, buckets.Bucket(events.BucketNodes), func(_ string, v events.NodeView) {
		if b := missed(v, live); b != nil {
			say(b)
		}
	})
}

// missed makes the fact about a node that some job has not heard: it still counts workers there that are gone.
func missed(v events.NodeView, live map[events.JobID]events.JobView) events.Body {
	gone := v.State == events.NodeGone || v.State == events.NodeDeparted
	counted := false
	for _, j := range live {
		for _, w := range j.Workers {
			if w.Place.Node != v.Node || job.Ended(w.State) {
				continue
			}
			counted = counted || (gone && w.Agent <= v.Incarnation) || (!gone && w.Agent != "" && w.Agent < v.Incarnation)
		}
	}
	f := events.NodeFact{Node: v.Node, Incarnation: v.Incarnation, Slots: v.Slots, Address: v.Address, Reason: v.Reason}
	switch {
	case !counted:
		return nil
	case v.State == events.NodeGone:
		return events.NodeLost{NodeFact: f}
	case v.State == events.NodeDeparted:
		return events.NodeLeft{NodeFact: f}
	}
	return events.NodeJoined{NodeFact: f}
}
