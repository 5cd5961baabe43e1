package job

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/english"
)

func remove(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm JOB... | --ended", Aliases: []string{"remove"}, Short: "Remove the records of jobs that have ended",
		Long:    "Removes the records of jobs that have ended: they are no longer listed. What happened and what they printed stays in the streams for as long as those keep it. With --force a job that has not ended is killed first.",
		Example: command.Examples("regroup rm mnist-7f3a", "regroup rm --ended --older-than 24h", "regroup rm mnist-7f3a --force"),
	}
	ended := cmd.Flags().Bool("ended", false, "all jobs that have ended")
	older := cmd.Flags().Duration("older-than", 0, "with --ended: only those that ended longer ago: 24h")
	force := cmd.Flags().Bool("force", false, "kill a job that has not ended")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 && !*ended:
			return errcode.Errorf(errcode.Invalid, "name the jobs to remove, or give --ended (see regroup rm --help)")
		case len(args) > 0 && *ended:
			return errcode.Errorf(errcode.Invalid, "both jobs and --ended are given")
		case *older != 0 && !*ended:
			return errcode.Errorf(errcode.Invalid, "--older-than is for --ended")
		}
		return nil
	}
	cmd.RunE = env.Connected(func(ctx context.Context, s command.Session) error {
		views, err := toRemove(ctx, s, env.Now().Add(-*older))
		if err != nil {
			return err
		}
		for _, v := range views {
			if !v.State.Terminal() && !*force {
				return errcode.Errorf(errcode.Invalid, "%s is %s: stop it first, or kill it with --force; nothing is removed", v.Job, v.State)
			}
		}
		for _, v := range views {
			// each job may have a server of its own
			if v, err = s.Job(ctx, string(v.Job)); err != nil {
				return err
			}
			if !v.State.Terminal() {
				if err := s.StopAndWait(ctx, v.Job, "removed", true); err != nil {
					return err
				}
			}
			if err := s.Remove(ctx, v.Job); err != nil {
				return err
			}
			fmt.Fprintf(env.Err, "%s is removed\n", v.Job)
		}
		if *ended {
			fmt.Fprintf(env.Err, "%s removed\n", english.Plural(len(views), "job"))
		}
		return nil
	})
	return cmd
}

// toRemove finds the named jobs, or all that ended before a time.
func toRemove(ctx context.Context, s command.Session, before time.Time) ([]events.JobView, error) {
	var views []events.JobView
	if len(s.Args) > 0 {
		for _, ref := range s.Args {
			v, err := s.Job(ctx, ref)
			if err != nil {
				return nil, err
			}
			views = append(views, v)
		}
		return views, nil
	}
	all, err := s.Jobs(ctx)
	for _, v := range all {
		if v.State.Terminal() && !v.Ended.After(before) && s.MayChange(v) {
			views = append(views, v)
		}
	}
	return views, err
}
