package client

import (
	"context"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/internal/wait"
)

// exitsWithin bounds the wait for workers that are being stopped when their job has failed: one of
// them may have failed before the others.
const exitsWithin = 2 * time.Second

// AwaitExits returns the view of a job that has ended. If it has failed, it waits a while for the
// exits of workers that still ran then, and returns the newest view.
func (c *Client) AwaitExits(ctx context.Context, v events.JobView) (events.JobView, error) {
	limit, cancel := context.WithTimeout(ctx, exitsWithin)
	defer cancel()
	for v.State == events.JobStateFailed && v.ExitsMissing() && wait.Sleep(limit, 50*time.Millisecond) {
		now, err := c.Job(ctx, string(v.Job))
		if err != nil {
			return v, err
		}
		v = now
	}
	return v, nil
}
