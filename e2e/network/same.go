package network

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/replay"
	"github.com/regroup-io/regroup/events"
)

// Facts reads all facts so far, in order.
func (c *Datacenter) Facts(ctx context.Context, subjects ...string) ([]events.Event, error) {
	var all []events.Event
	err := c.Client.Watch(ctx, events.FromFirst, subjects, func() error { return cluster.Enough }, func(a cluster.Arrival) error {
		all = append(all, a.Event)
		return nil
	})
	return all, err
}

// Same replays the whole log and compares the result with the services' documents. It waits until
// the log has caught up.
func (c *Datacenter) Same(ctx context.Context, job events.JobID) (facts int, err error) {
	err = cluster.Until(ctx, func() (bool, error) {
		all, err := c.Facts(ctx, events.AllFacts)
		if err != nil {
			return false, err
		}
		r, wrong := replay.Fold(all)
		facts = r.Facts
		err = errors.Join(wrong, c.compare(ctx, r, job))
		return err == nil, err
	})
	return facts, err
}

func (c *Datacenter) compare(ctx context.Context, r *replay.Replay, id events.JobID) error {
	var wrong error
	differ := func(what string, replayed, stored any) {
		if !reflect.DeepEqual(replayed, stored) {
			wrong = errors.Join(wrong, fmt.Errorf("%s: replayed %+v, stored %+v", what, replayed, stored))
		}
	}
	for _, n := range c.Nodes {
		v, err := cluster.View[events.NodeView](ctx, c.Client, events.BucketNodes, n)
		if err != nil {
			return err
		}
		got := r.Nodes[events.NodeID(n)]
		if got == nil {
			return fmt.Errorf("the log does not know %s", n)
		}
		differ(n, []any{got.State, got.Incarnation, got.Slots, got.Address}, []any{v.State, v.Incarnation, v.Slots, v.Address})
	}
	pool, err := cluster.View[events.PoolView](ctx, c.Client, events.BucketPlacements, events.PoolKey)
	if err != nil {
		return err
	}
	v, err := cluster.View[events.JobView](ctx, c.Client, events.BucketJobs, string(id))
	if err != nil {
		return err
	}
	round, err := cluster.View[events.RoundView](ctx, c.Client, events.BucketRounds, string(id))
	if err != nil {
		return err
	}
	j := r.Job(id)
	var last events.RoundSealed
	if n := len(j.Sealed); n > 0 {
		last = j.Sealed[n-1]
	}
	differ("placement", tail(j.Places, len(j.Places)), tail(pool.Jobs[id].Places, len(pool.Jobs[id].Places)))
	differ("job", []any{j.State, j.Reason, last.Generation}, []any{v.State, v.Reason, v.Generation})
	differ("round", []any{j.Round, last.Generation, last.Members}, []any{round.State, round.Generation, round.Members})
	differ("incidents", tail(j.Explained(v.Incidents), len(v.Incidents)), tail(v.Incidents, len(v.Incidents)))
	return wrong
}

// tail is the end of a list, never nil: a service stores only the newest ones.
func tail[T any](all []T, n int) []T { return append([]T{}, all[max(0, len(all)-n):]...) }
