package run

import (
	"context"
	"errors"
	"syscall"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/client"
	"github.com/regroup-io/regroup/cmd/regroup/internal/exitcode"
	"github.com/regroup-io/regroup/events"
)

// leftBy is the exit code of a run that only followed its job and ended early: by Ctrl-C, or
// because its output has no reader. 0 = neither.
func leftBy(err error) int {
	switch {
	case errors.Is(err, boot.ErrInterrupted):
		return exitcode.Interrupted
	case errors.Is(err, syscall.EPIPE):
		return exitcode.Unread
	}
	return exitcode.OK
}

// stopAndWait stops a job and waits until it has ended.
func stopAndWait(ctx context.Context, c *client.Client, job events.JobID, reason string) error {
	if err := c.Stop(ctx, job, reason, false); err != nil {
		return err
	}
	return c.Follow(ctx, job, func(e events.Event) error {
		switch e.Body.(type) {
		case events.JobSucceeded, events.JobFailed, events.JobStopped:
			return client.Stop()
		}
		return nil
	})
}
