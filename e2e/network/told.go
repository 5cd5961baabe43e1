package network

import (
	"context"
	"fmt"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/events"
)

// Facts reads everything that was told so far, in order.
func (c *Center) Facts(ctx context.Context, subjects ...string) ([]events.Event, error) {
	var all []events.Event
	err := c.Client.Watch(ctx, events.FromFirst, subjects, func() error { return cluster.Enough }, func(a cluster.Arrival) error {
		all = append(all, a.Event)
		return nil
	})
	return all, err
}

// Told checks that what judges have told about a job has no gap and no repeat.
func (c *Center) Told(ctx context.Context, job events.JobID) error {
	all, err := c.Facts(ctx, "regroup.evt.*."+string(job)+".>")
	if err != nil {
		return err
	}
	ids, last := map[string]bool{}, map[events.Family]uint64{}
	for _, e := range all {
		if ids[e.Source+e.ID] {
			return fmt.Errorf("%s: %s was told twice", job, e.ID)
		}
		ids[e.Source+e.ID] = true
		f := e.Body.Type().Family()
		if e.Number == 0 || f == events.FamilyPlacement { // the pool numbers the facts about all jobs
			continue
		}
		if e.Number != last[f]+1 {
			return fmt.Errorf("%s: %s has number %d and follows %d", job, e.Body.Type(), e.Number, last[f])
		}
		last[f] = e.Number
	}
	if len(ids) == 0 {
		return fmt.Errorf("nothing was told about %s", job)
	}
	return nil
}
