// Package job is the commands that look at one job or change it: ls, status, logs, events, timeline, trace, scale, stop.
package job

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/events"
)

// Commands returns all of them; each stands directly under regroup.
func Commands(env command.Env) []*cobra.Command {
	all := []*cobra.Command{list(env), status(env), logs(env), facts(env), timeline(env), trace(env), scale(env), stop(env)}
	for _, c := range all {
		command.Polish(c)
	}
	return all
}

// onJob makes the body of a command whose first argument names a job.
func onJob(env command.Env, do func(ctx context.Context, s command.Session, v events.JobView) error) func(*cobra.Command, []string) error {
	return env.Connected(func(ctx context.Context, s command.Session) error {
		v, err := s.Job(ctx, s.Args[0])
		if err != nil {
			return err
		}
		return do(ctx, s, v)
	})
}
