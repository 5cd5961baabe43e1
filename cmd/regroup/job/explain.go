package job

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/explain"
	"github.com/regroup-io/regroup/events"
)

func why(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain [JOB]", Aliases: []string{"why"}, Short: "Say what a job is doing, and what it waits for", Args: command.AtMost("JOB"),
		Long:    "Says in one sentence with numbers what the job is doing, or what it waits for and how long it will: slots, nodes, workers that have not joined, the last call, the failure budget, services of which none answers. Without a name it is about the job that was submitted last.",
		Example: command.Examples("regroup explain mnist-7f3a", "regroup explain mnist", "regroup explain mnist -o json | jq .missing"),
	}
	form := command.Output(cmd, command.Text, command.JSON, command.YAML)
	cmd.RunE = onJob(env, func(ctx context.Context, s command.Session, v events.JobView) error {
		s.Live(ctx, &v)
		seen := explain.Seen{Job: v, Now: env.Now(), Silent: s.Silent(ctx)}
		var err error
		if seen.Round, err = s.Round(ctx, v.Job); err != nil {
			return err
		}
		pool, err := s.Placement(ctx)
		if err != nil {
			return err
		}
		seen.Placement, seen.Pool = pool.Jobs[v.Job], pool
		if seen.Nodes, err = s.Nodes(ctx); err != nil {
			return err
		}
		e := explain.Of(seen)
		if written, err := form.Write(env.Out, e); written {
			return err
		}
		_, err = fmt.Fprintln(env.Out, e.Sentence)
		return err
	})
	return cmd
}
