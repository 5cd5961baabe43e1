package rendezvous

import (
	"context"
	"errors"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/rendezvous/round"
)

// route returns the jobs that an input concerns: its own, or all that have a member on its node. It
// leaves out jobs for which the input changes nothing, because even such a transition has a cost.
func route(in events.Input, known func() []string, state func(string) (round.State, bool)) []string {
	switch b := in.Body.(type) {
	case events.PlacementSet:
		return one(b.Job)
	case events.JobSubmitted:
		if s, ok := state(string(b.Job)); !b.Spec.External() || (ok && s.Nodes != nil) {
			return nil
		}
		return one(b.Job)
	case events.NodeEnter:
		return one(b.Job)
	case events.NodeExit:
		return one(b.Job)
	case events.RendezvousClose:
		return one(b.Job)
	case events.MemberJoin:
		return one(b.Job)
	case events.MemberJoins:
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
	case events.JobRespawnDenied:
		return one(b.Job)
	case events.JobStalled:
		return one(b.Job)
	case events.JobFinishing:
		return one(b.Job)
	case events.JobStopping:
		return one(b.Job)
	case events.JobSucceeded:
		return ended(b.Job, state)
	case events.JobFailed:
		return ended(b.Job, state)
	case events.JobStopped:
		return ended(b.Job, state)
	case events.JobRemoved:
		if _, ok := state(string(b.Job)); !ok {
			return nil
		}
		return one(b.Job)
	case events.NodeJoined:
		if in.ID == "" { // its record, read again
			return lacking(b.NodeFact, in.Number, known, state)
		}
		return on(b.Node, in.Number, known, state)
	case events.NodeSuspected: // overloaded brokers cause thousands of them
		return lacking(b.NodeFact, in.Number, known, state)
	case events.NodeRecovered:
		return on(b.Node, in.Number, known, state)
	case events.NodeDraining:
		return on(b.Node, in.Number, known, state)
	case events.NodeLost:
		return on(b.Node, in.Number, known, state)
	case events.NodeLeft:
		return on(b.Node, in.Number, known, state)
	case events.Heartbeat:
		return where(known, state, func(s round.State) bool { return s.LaunchMissed(b, in.Time) || s.KeepsAlive(b) })
	}
	return nil
}

func one(j events.JobID) []string { return []string{string(j)} }

// ended returns the job of an input that ends it, unless its round is closed.
func ended(j events.JobID, state func(string) (round.State, bool)) []string {
	if s, ok := state(string(j)); ok && s.View.State == events.RoundStateClosed {
		return nil
	}
	return one(j)
}

// on returns the jobs that a fact about a node concerns.
func on(n events.NodeID, number uint64, known func() []string, state func(string) (round.State, bool)) []string {
	return where(known, state, func(s round.State) bool { return s.Concerns(n) && !s.Superseded(n, number) })
}

// lacking is like on, for jobs that do not know this incarnation of the node yet.
func lacking(n events.NodeFact, number uint64, known func() []string, state func(string) (round.State, bool)) []string {
	return where(known, state, func(s round.State) bool { return s.Concerns(n.Node) && !s.Superseded(n.Node, number) && s.Lacks(n) })
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

func newRecords(p events.Ports) *records {
	r := &records{}
	r.jobs.Bucket, r.nodes.Bucket = p.Buckets.Bucket(events.BucketJobs), p.Buckets.Bucket(events.BucketNodes)
	r.rounds.Bucket = p.Buckets.Bucket(events.BucketRounds)
	return r
}

// followNodes, followJobs and followRounds watch large sets of records of which few change.
func (k *records) followNodes(ctx context.Context, _ controller.Emit) error {
	return k.nodes.Follow(ctx)
}
func (k *records) followJobs(ctx context.Context, _ controller.Emit) error { return k.jobs.Follow(ctx) }
func (k *records) followRounds(ctx context.Context, _ controller.Emit) error {
	return k.rounds.Follow(ctx)
}

// reconcile emits inputs from the records of other services in case a fact was missed: lost nodes,
// ended and removed jobs.
func (k *records) reconcile(ctx context.Context, emit func(events.Input)) error {
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
		removed, err := k.removed(ctx, r.Key)
		if err != nil {
			return err
		}
		if removed {
			emit(events.Input{Body: events.JobRemoved{Job: events.JobID(r.Key)}})
		}
	}
	for _, r := range jobs {
		end := events.JobEnd{Job: r.View.Job, Reason: r.View.Reason, Code: r.View.Code}
		in := events.Input{Number: r.Number[events.FamilyJob]}
		switch r.View.State {
		case events.JobStateSucceeded:
			in.Body = events.JobSucceeded{JobEnd: end}
		case events.JobStateFailed:
			in.Body = events.JobFailed{JobEnd: end}
		case events.JobStateStopped:
			in.Body = events.JobStopped{JobEnd: end}
		default:
			if !r.View.Spec.External() {
				continue
			}
			in.Body = events.JobSubmitted{Job: r.View.Job, Spec: r.View.Spec, By: r.View.By}
		}
		emit(in)
	}
	nodes, err := k.nodes.Records(ctx)
	if err != nil {
		return err
	}
	for _, r := range nodes {
		v := r.View
		f := v.Fact()
		in := events.Input{Number: r.Number[events.FamilyNode]}
		switch v.State {
		case events.NodeStateLost:
			in.Body = events.NodeLost{NodeFact: f}
		case events.NodeStateLeft:
			in.Body = events.NodeLeft{NodeFact: f}
		default:
			in.Body = events.NodeJoined{NodeFact: f}
		}
		emit(in)
	}
	return nil
}

// removed reads from the bucket whether a job has no record, or only that of its removal. A list
// would skip records that this version cannot read.
func (k *records) removed(ctx context.Context, job string) (bool, error) {
	stored, _, err := k.jobs.Bucket.Load(ctx, job)
	if errors.Is(err, events.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	v, err := document.View[events.JobHead](stored)
	return err == nil && v.State == "", nil // a record of a newer version exists
}
