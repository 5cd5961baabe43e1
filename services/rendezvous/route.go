package rendezvous

import (
	"context"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/rendezvous/round"
)

// route returns the jobs that an input concerns: its own, or all that have a member on its node. It
// leaves out jobs for which the input changes nothing, because even such a transition has a cost.
func route(in events.Input, known func() []string, state func(string) (round.State, bool)) []string {
	if !controller.Reads(events.ServiceRendezvous, in.Body) {
		return nil
	}
	switch b := in.Body.(type) {
	case events.JobSubmitted:
		if s, ok := state(string(b.Job)); !b.Spec.SelfRegistered() || (ok && s.Nodes != nil) {
			return nil
		}
	case events.JobEndFact:
		if s, ok := state(string(b.End().Job)); ok && s.View.State == events.RoundStateClosed {
			return nil
		}
	case events.JobRemoved:
		if _, ok := state(string(b.Job)); !ok {
			return nil
		}
	case events.Notice:
		return []string{string(b.Exited.Job)}
	case events.NodeEvent:
		n := b.Fact()
		return where(known, state, func(s round.State) bool {
			return s.Concerns(n.Node) && !s.Superseded(n.Node, in.Number) && (!repeats(in) || s.Lacks(n))
		})
	case events.Heartbeat:
		return where(known, state, func(s round.State) bool { return s.LaunchMissed(b, in.Time) || s.KeepsAlive(b) })
	}
	if id, ok := events.JobOf(in.Body); ok {
		return []string{string(id)}
	}
	return nil
}

// repeats reports whether there are many facts like this one: only jobs that lack it need it.
func repeats(in events.Input) bool {
	switch in.Body.(type) {
	case events.NodeJoined:
		return in.ID == "" // its record, read again
	case events.NodeSuspected: // overloaded brokers cause thousands of them
		return true
	}
	return false
}

func where(known func() []string, state func(string) (round.State, bool), concerns func(round.State) bool) []string {
	var jobs []string
	for _, job := range known() {
		if s, ok := state(job); ok && concerns(s) {
			jobs = append(jobs, job)
		}
	}
	return jobs
}

// records are the views that the other services publish.
type records struct {
	jobs   document.Reader[events.JobHead]
	nodes  document.Reader[events.NodeView]
	rounds document.Reader[roundHead]
}

// roundHead is the part of a round's document that shows whether it is over.
type roundHead struct {
	State events.RoundState `json:"state"`
}

func newRecords(p broker.Ports) *records {
	r := &records{}
	r.jobs.Bucket, r.nodes.Bucket = p.Buckets.Bucket(events.BucketJobs), p.Buckets.Bucket(events.BucketNodes)
	r.rounds.Bucket = p.Buckets.Bucket(events.BucketRounds)
	return r
}

// reconcile emits inputs from the records of other services in case a fact was missed: lost nodes,
// ended and removed jobs.
func (k *records) reconcile(ctx context.Context, emit controller.Emit) error {
	rounds, err := k.rounds.Records(ctx)
	if err != nil {
		return err
	}
	jobs, err := k.jobs.Records(ctx)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, r := range jobs {
		known[r.Key] = r.View.State != ""
	}
	for _, r := range rounds {
		if r.View.State != events.RoundStateClosed || known[r.Key] {
			continue
		}
		removed, err := controller.JobRemoved(ctx, k.jobs.Bucket, ident.JobID(r.Key))
		if err != nil {
			return err
		}
		if removed {
			emit(events.Input{Body: events.JobRemoved{Job: ident.JobID(r.Key)}})
		}
	}
	for _, r := range jobs {
		v, in := r.View, events.Input{Number: r.Number[events.FamilyJob]}
		switch {
		case v.State.Terminal():
			in.Body = events.JobEnd{Job: v.Job, Reason: v.Reason, Code: v.Code}.Fact(v.State)
		case v.Spec.SelfRegistered():
			in.Body = events.JobSubmitted{Job: v.Job, Spec: v.Spec, By: v.By}
		default:
			continue
		}
		emit(in)
	}
	nodes, err := k.nodes.Records(ctx)
	if err != nil {
		return err
	}
	for _, r := range nodes {
		emit(controller.NodeInput(r))
	}
	return nil
}
