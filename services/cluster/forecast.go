package cluster

import (
	"context"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

// Forecast says what the scheduler of the server in use would do with a job that were submitted
// now. It runs the scheduler's own machine ahead, from the records that anyone may read, and
// changes nothing.
func (c *Client) Forecast(ctx context.Context, job spec.Job) (plan.Forecast, error) {
	job = job.WithDefaults()
	if job.SelfRegistered() {
		return plan.Forecast{}, errcode.Errorf(errcode.Invalid, "%s has nodes that come by themselves (rendezvous): no scheduler places its workers", job.Name)
	}
	at := *c.at.Load()
	nodes, err := nodesOf(ctx, c, at)
	if err != nil {
		return plan.Forecast{}, err
	}
	jobs, err := jobsOf(ctx, c, at)
	if err != nil {
		return plan.Forecast{}, err
	}
	pool, err := loadAt[events.PoolView](ctx, c, at, events.BucketPlacements, events.PoolKey)
	if err != nil && errcode.Of(err) != errcode.NotFound {
		return plan.Forecast{}, err
	}
	return plan.Predict(func() plan.State { return plan.Seen(nodes, jobs, pool) }, ident.JobID(job.Name), job, time.Now()), nil
}
