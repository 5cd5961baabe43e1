package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/cluster/view"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

// Forecast says what the scheduler of the server in use would do with a job that were submitted
// now, from the records that anyone may read.
func (c *Client) Forecast(ctx context.Context, job spec.Job) (Planned, error) {
	at := *c.at.Load()
	nodes, err := nodesOf(ctx, c, at)
	if err != nil {
		return Planned{}, err
	}
	jobs, err := jobsOf(ctx, c, at)
	if err != nil {
		return Planned{}, err
	}
	pool, err := loadAt[events.PoolView](ctx, c, at, events.BucketPlacements, events.PoolKey)
	if err != nil && errcode.Of(err) != errcode.NotFound {
		return Planned{}, err
	}
	return Plan(nodes, jobs, pool, job, c.Silent(ctx))
}

// Plan says what the scheduler would do with a job, where these are the records of a cluster and
// silent its services of which none answers. It runs the scheduler's own machine ahead and changes
// nothing. A job whose nodes come by themselves is refused.
func Plan(nodes []events.NodeView, jobs []events.JobView, pool events.PoolView, job spec.Job, silent []string) (Planned, error) {
	if job = job.WithDefaults(); job.SelfRegistered() {
		return Planned{}, errcode.Errorf(errcode.Invalid, "%s has nodes that come by themselves (rendezvous): no scheduler places its workers", job.Name)
	}
	id := ident.JobID(job.Name)
	f, then := plan.Predict(func() plan.State { return plan.Seen(nodes, jobs, pool) }, id, job, time.Now())
	f.Waiting = view.Queued(events.JobView{Job: id, Spec: job}, f.Waiting, then)
	return Planned{Job: job.Name, Starts: len(f.Places) > 0, Forecast: f, Silent: slices.Contains(silent, events.ServiceScheduler)}, nil
}
