package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/exitcode"
	again "github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/cluster/view"
)

var errTooLong = errors.New("waited long enough")

func wait(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "wait [JOB]", Short: "Wait until a job has ended, and exit with its outcome", Args: command.AtMost("JOB"),
		Long:    "Waits until a job has ended and exits as regroup run does: 0 succeeded, 10 failed, 11 stopped, 14 failure budget used up; 12 if it has not ended within --timeout. With -o json it prints the object that run -o json prints. Without a name it is about the job that was submitted last.",
		Example: command.Examples("regroup wait mnist-7f3a", "regroup wait mnist --timeout 1h && ./evaluate.sh", "regroup wait mnist --for running", "regroup wait mnist -o json | jq .outcome"),
	}
	until := cmd.Flags().String("for", "", "wait for a `STATE` instead, or for a state after it: running, finishing")
	limit := cmd.Flags().Duration("timeout", 0, "how long to wait for the end; 0 = as long as it takes")
	form := command.Reading(cmd, command.Text, command.JSON, command.YAML)
	cmd.RunE = onJob(env, func(ctx context.Context, s command.Session, v events.JobView) error {
		if *limit > 0 {
			var cancel func()
			ctx, cancel = context.WithTimeoutCause(ctx, *limit, errTooLong)
			defer cancel()
		}
		if *until != "" {
			return awaitState(ctx, s, v, events.JobState(*until), *limit)
		}
		if !v.State.Terminal() {
			job := v.Job
			if err := s.AwaitEnd(ctx, job); errors.Is(context.Cause(ctx), errTooLong) {
				return &exitcode.Error{Code: exitcode.TimedOut, Err: fmt.Errorf("%s has not ended within %s: it is %s", job, view.Span(*limit), v.State)}
			} else if err != nil {
				return err
			}
			var err error
			if v, err = s.Job(ctx, string(job)); err != nil {
				return err
			}
		}
		end := view.Summarize(v, env.Now())
		if written, err := form.Write(env.Out, end); err != nil {
			return err
		} else if !written {
			if err := screen.Final(env.Err, env.Palette(cmd, env.ErrIsTerminal), v, env.Now()); err != nil {
				return err
			}
		}
		return end.Err()
	})
	return cmd
}

// awaitState waits until a job is in a state, or in one that comes after it. A job that has ended
// before it ends the command as wait does.
func awaitState(ctx context.Context, s command.Session, v events.JobView, until events.JobState, limit time.Duration) error {
	order := []events.JobState{events.JobStateWaiting, events.JobStateRunning, events.JobStateFinishing, events.JobStateStopping}
	at := slices.Index(order, until)
	if at < 1 || until == events.JobStateStopping {
		return errcode.Errorf(errcode.Invalid, "--for %q: write running or finishing; without it the command waits for the end", until)
	}
	job := v.Job
	err := again.Until(ctx, stateEvery, func() (bool, error) {
		now, err := s.Job(ctx, string(job))
		if err != nil {
			return false, err
		}
		v = now
		return v.State.Terminal() || slices.Index(order, v.State) >= at, nil
	})
	if errors.Is(context.Cause(ctx), errTooLong) {
		return &exitcode.Error{Code: exitcode.TimedOut, Err: fmt.Errorf("%s is not %s within %s: it is %s", job, until, view.Span(limit), v.State)}
	}
	if err == nil && v.State.Terminal() && v.State != events.JobStateSucceeded {
		return view.Summarize(v, v.Ended).Err()
	}
	return err
}

// stateEvery is the time between two looks at a job.
const stateEvery = 100 * time.Millisecond
