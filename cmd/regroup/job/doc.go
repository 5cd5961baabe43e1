// Package job implements the commands that show or change one job: ls, status, explain, logs,
// events, timeline, metrics, trace, verify, scale, close, stop, wait, rm.
package job

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/services/cluster"
)

// Commands returns all commands, each directly under regroup.
func Commands(env command.Env) []*cobra.Command {
	all := []*cobra.Command{list(env), topCommand(env), status(env), logs(env), facts(env), why(env), drawTimeline(env), metrics(env), trace(env), verify(env), scale(env), closeRendezvous(env), stop(env), wait(env), remove(env)}
	for _, c := range all {
		if strings.Contains(c.Use, "JOB") {
			c.ValidArgsFunction = env.Completes(jobsFor(c.Name()))
		}
		command.WithUsage(c)
	}
	return all
}

// jobsFor completes a JOB: running ones first, for a command that changes a job those that it can
// change.
func jobsFor(name string) func(context.Context, *cluster.Client) ([]cobra.Completion, error) {
	return func(ctx context.Context, c *cluster.Client) ([]cobra.Completion, error) {
		all, err := c.Jobs(ctx)
		if err != nil {
			return nil, err
		}
		words := make([]cobra.Completion, 0, len(all))
		for _, ended := range []bool{false, true} {
			if ended && (name == "stop" || name == "scale" || name == "close") || !ended && name == "rm" {
				continue
			}
			for _, v := range all {
				if v.State.Terminal() == ended {
					words = append(words, cobra.CompletionWithDesc(string(v.Job), string(v.State)))
				}
			}
		}
		return words, nil
	}
}
