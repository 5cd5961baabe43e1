package agent

import (
	"context"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/internal/english"
)

// gatherFor is how long a join waits for those of the node's other workers: after a fault they
// arrive within a millisecond, and one request per worker would multiply the cost for the
// rendezvous.
const gatherFor = 2 * time.Millisecond

// gathered holds the joins of one job that have not been sent.
type gathered struct {
	joins []events.MemberJoin
	by    time.Time
}

// gather keeps a join until sendJoins sends it.
func (a *Agent) gather(j events.MemberJoin) {
	g := a.joins[j.Job]
	if g == nil {
		g = &gathered{by: time.Now().Add(gatherFor)}
		a.joins[j.Job] = g
	}
	g.joins = append(g.joins, j)
}

// sendJoins sends joins that have waited long enough or are complete, and returns when to call it
// again; zero = never.
func (a *Agent) sendJoins(work context.Context) time.Time {
	var next time.Time
	for id, g := range a.joins {
		if a.state.MayJoin(id) && time.Now().Before(g.by) {
			if next.IsZero() || g.by.Before(next) {
				next = g.by
			}
			continue
		}
		delete(a.joins, id)
		a.tasks.Go(func() error { a.join(work, events.MemberJoins{Job: id, Joins: g.joins}); return nil })
	}
	return next
}

// join makes one call, which the machine repeats.
func (a *Agent) join(ctx context.Context, all events.MemberJoins) {
	trace := ""
	for _, j := range all.Joins {
		if j.Left > 0 {
			trace = tracing.IncidentTrace(j.Job, j.Left)
		}
	}
	got, err := a.ask(ctx, all, trace)
	if err == nil && len(got.Answers) != len(all.Joins) {
		err = errcode.Errorf(errcode.Internal, "%s to %s", english.Plural(len(got.Answers), "answer"), english.Plural(len(all.Joins), "join"))
	}
	for i, j := range all.Joins {
		in := worker.JoinAnswered{Worker: j.Incarnation}
		if err != nil {
			in.Refused, in.Reason = errcode.Of(err), err.Error()
		} else {
			in.Waiting, in.Refused, in.Reason = got.Answers[i].MemberWaiting, got.Answers[i].Refused, got.Answers[i].Reason
		}
		a.inputs.put(in)
	}
}

// ask asks the replica that published the job's newest launch, and any other if that one does not
// answer. It has the round in its cache, and different replicas would conflict if they applied
// joins of one round at the same time.
func (a *Agent) ask(ctx context.Context, all events.MemberJoins, trace string) (events.MemberAnswers, error) {
	patience := time.Duration(a.patience.Load())
	if via, ok := a.via.Load(all.Job); ok {
		subject := events.ReplicaSubject(events.ServiceRendezvous, events.VerbJoins, via.(string))
		got, err := callOn[events.MemberAnswers](ctx, a, subject, max(callTimeout/2, patience), all, trace)
		if err == nil {
			return got, nil
		}
		a.via.CompareAndDelete(all.Job, via)
	}
	subject := events.RequestSubject(events.ServiceRendezvous, events.VerbJoins)
	return callOn[events.MemberAnswers](ctx, a, subject, max(callTimeout, patience), all, trace)
}

// noteReplica records the replica that publishes the launches of a job.
func (a *Agent) noteReplica(l events.Launch) {
	switch {
	case l.Revision < a.state.Revisions()[l.Job]:
	case l.Phase == events.PhaseStop || l.Via == "":
		a.via.Delete(l.Job)
	default:
		a.via.Store(l.Job, l.Via)
	}
}
