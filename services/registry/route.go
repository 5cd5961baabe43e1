package registry

import (
	"context"
	"maps"
	"slices"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/registry/job"
)

// route returns the jobs that an input concerns: its own, or those with workers on its node.
func route(in events.Input, known func() []string, state func(string) (job.State, bool)) []string {
	if !controller.Reads(events.ServiceRegistry, in.Body) {
		return nil
	}
	id, ok := events.JobOf(in.Body)
	switch b := in.Body.(type) {
	case events.JobSubmit:
		return submitted(ident.JobIDs(b.Spec.Name, in.Source, in.ID), in, state)
	case events.PlacementSet, events.PlacementWaiting:
		return unknown(id, in, state)
	case events.Progress, events.StepsStalled:
		return existing(id, state)
	case events.NodeEvent:
		return on(b.Fact().Node, known, state)
	}
	if !ok {
		return nil
	}
	return one(id)
}

// one routes to one job, or to none if the id is no valid key.
func one(id ident.JobID) []string {
	if id.Check() != nil {
		return nil
	}
	return []string{string(id)}
}

// submitted routes to the job that the event has submitted before, or else to its first free id.
func submitted(ids []ident.JobID, in events.Input, state func(string) (job.State, bool)) []string {
	free := ids[len(ids)-1]
	for _, id := range slices.Backward(ids) {
		s, ok := state(string(id))
		switch {
		case ok && s.Removed != nil: // it was another event's
			if s.Removed.SubmittedBy(in.Source, in.ID) {
				return one(id)
			}
		case !ok || s.View.State == "": // unused, or it has only a stop
			free = id
		case s.View.SubmittedBy(in.Source, in.ID):
			return one(id)
		}
	}
	return one(free)
}

// existing routes to a job that has a document: signals must not create one.
func existing(id ident.JobID, state func(string) (job.State, bool)) []string {
	if _, ok := state(string(id)); !ok {
		return nil
	}
	return one(id)
}

// unknown routes the scheduler's record, which is read periodically: to no job that has it already.
func unknown(id ident.JobID, in events.Input, state func(string) (job.State, bool)) []string {
	if s, ok := state(string(id)); ok && in.ID == "" && s.Superseded(in.Number) {
		return nil
	}
	return one(id)
}

func on(n ident.NodeID, known func() []string, state func(string) (job.State, bool)) []string {
	var jobs []string
	for _, id := range known() {
		if s, ok := state(id); ok && s.Concerns(n) {
			jobs = append(jobs, id)
		}
	}
	return jobs
}

// records are the views that the other services publish.
type records struct {
	buckets broker.Buckets
	jobs    document.Reader[events.JobView]
	nodes   document.Reader[events.NodeView]
}

func newRecords(b broker.Buckets) *records {
	r := &records{buckets: b}
	r.jobs.Bucket, r.nodes.Bucket = b.Bucket(events.BucketJobs), b.Bucket(events.BucketNodes)
	return r
}

// reconcile emits inputs from the records of other services in case a fact was missed. Views are
// whole, so repeating them is harmless: the machine ignores what it knows. Each input carries the
// number of the last fact that it accounts for.
func (k *records) reconcile(ctx context.Context, emit controller.Emit) error {
	live := map[ident.JobID]events.JobView{}
	jobs, err := k.jobs.Records(ctx)
	if err != nil {
		return err
	}
	for _, r := range jobs {
		if v := r.View; v.State != "" && !v.State.Terminal() {
			live[v.Job] = v
		}
	}
	if len(live) == 0 {
		return nil
	}
	pools, err := document.All[events.PoolView](ctx, k.buckets.Bucket(events.BucketPlacements))
	if err != nil {
		return err
	}
	for _, r := range pools {
		for _, id := range slices.Sorted(maps.Keys(r.View.Jobs)) {
			if v, ok := live[id]; ok {
				places(r.View.Jobs[id], v, r.Number[events.FamilyPlacement], emit)
			}
		}
	}
	rounds, err := document.All[events.RoundView](ctx, k.buckets.Bucket(events.BucketRounds))
	if err != nil {
		return err
	}
	for _, r := range rounds {
		if v, ok := live[r.View.Job]; ok {
			generations(r.View, v, r.Number[events.FamilyRound], emit)
		}
	}
	nodes, err := k.nodes.Records(ctx)
	if err != nil {
		return err
	}
	workers := map[ident.NodeID][]tables.WorkerView{}
	for _, v := range live {
		for _, w := range v.Workers {
			workers[w.Place.Node] = append(workers[w.Place.Node], w)
		}
	}
	for _, r := range nodes {
		if missed(r.View, workers[r.View.Node]) {
			emit(controller.NodeInput(r))
		}
	}
	return nil
}

func places(row events.PlacementView, v events.JobView, number uint64, emit controller.Emit) {
	switch {
	case len(row.Places) > 0:
		emit(events.Input{Number: number, Body: events.PlacementSet{
			Job: v.Job, Places: row.Places, Workers: row.Workers, Spec: v.Spec, Reason: row.Waiting,
		}})
	case row.Waiting != "" && row.Waiting != v.Reason: // with ten thousand waiting jobs most inputs would change nothing
		emit(events.Input{Number: number, Body: events.PlacementWaiting{Job: v.Job, Reason: row.Waiting, Need: row.Workers.Min}})
	}
}

// generations emits what the rendezvous' record says about a job and the job lacks.
func generations(r events.RoundView, v events.JobView, number uint64, emit controller.Emit) {
	if g := r.Rendezvous; g != nil && v.Spec.SelfRegistered() && (len(g.Placed) > 0 || g.Closed || g.Round > 0) {
		emit(events.Input{Number: number, Body: gathered(v, *g)})
	}
	if r.Generation > v.Generation {
		// The view lacks the times of the round: an incident that ends with this seal is published
		// without them.
		emit(events.Input{Number: number, Body: events.RoundSealed{Job: r.Job, Generation: r.Generation, Members: r.Members, Cause: r.Cause, NoProgress: r.NoProgress}})
	}
	if r.Proposed > max(r.Generation, v.Generation) {
		emit(events.Input{Number: number, Body: events.RoundOpened{Job: r.Job, Proposed: r.Proposed, Expected: r.Expected, Cause: r.Cause}})
	}
}

// gathered returns the fact that lists the self-registered nodes.
func gathered(v events.JobView, g events.RendezvousView) events.RoundParticipantsSet {
	b := events.RoundParticipantsSet{Job: v.Job, Round: g.Round, Nodes: g.Participants, Workers: v.Spec.Workers, Closed: g.Closed, Abandoned: g.Abandoned, Reason: "as the rendezvous shows it"}
	for _, n := range g.Placed {
		for s := range v.Spec.Rendezvous.WorkersPerNode {
			b.Places = append(b.Places, ident.Place{Node: n, Slot: ident.Slot(s)})
		}
	}
	return b
}

// missed reports whether some job has missed a fact about a node, judging by the job's workers
// there: it counts workers as running that are gone, or as lost that run.
func missed(v events.NodeView, workers []tables.WorkerView) bool {
	ended := v.State == events.NodeStateLost || v.State == events.NodeStateLeft
	for _, w := range workers {
		switch {
		case w.State.Ended(): // lost with an agent that is alive: the loss arrived after the return
			if !ended && w.State == tables.WorkerStateLost && w.Agent == v.Incarnation {
				return true
			}
		case ended:
			if w.Agent <= v.Incarnation {
				return true
			}
		case w.Agent != "" && w.Agent < v.Incarnation:
			return true
		}
	}
	return false
}
