package job

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
)

func timeline(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "timeline [JOB]", Short: "Draw what each worker did when", Args: command.AtMost("JOB"),
		Long:    "Draws one row for each life of a worker: training, waiting for the next generation, taking over state, death. Times are those of the machines' clocks. Without a name it is about the job that was submitted last.",
		Example: command.Examples("regroup timeline mnist", "regroup timeline mnist --ascii", "regroup timeline mnist -o json | jq .generations"),
	}
	ascii := cmd.Flags().Bool("ascii", false, "draw with plain characters")
	form := command.Output(cmd, command.Text, command.JSON, command.YAML)
	cmd.RunE = onJob(env, func(ctx context.Context, s command.Session, v events.JobView) error {
		var all []events.Event
		err := s.Facts(ctx, v.Job, func(e events.Event) error {
			all = append(all, e)
			return nil
		})
		if err != nil {
			return err
		}
		t := screen.NewTimeline(all, env.Now())
		if written, err := form.Write(env.Out, t); written {
			return err
		}
		return screen.Gantt{Palette: s.Palette, Width: env.Width, ASCII: *ascii}.Draw(env.Out, t)
	})
	return cmd
}
