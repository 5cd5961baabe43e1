package job

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/internal/escape"
	"github.com/regroup-io/regroup/services/cluster/view"
	"github.com/regroup-io/regroup/services/cluster/waterfall"
)

func trace(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "trace [JOB]", Short: "Draw the traces of a job's start and incidents", Args: command.AtMost("JOB"),
		Long:    "Draws one waterfall for the start of a job (incident 0) and one for each of its incidents: from the fault to the first good step, over every process that took part. No collector is needed: spans are kept beside the events. Without a name it is about the job that was submitted last.",
		Example: command.Examples("regroup trace mnist", "regroup trace mnist --incident 2", "regroup trace mnist --incident 1 -o json | jq '.[].spans[].name'"),
	}
	only := cmd.Flags().Int("incident", -1, "only this one; 0 = the start of the job")
	ascii := cmd.Flags().Bool("ascii", false, "draw with plain characters")
	form := command.Output(cmd, command.Text, command.JSON, command.YAML)
	cmd.RunE = onJob(env, func(ctx context.Context, s command.Session, v events.JobView) error {
		if *only < 0 && cmd.Flags().Changed("incident") {
			return errcode.Errorf(errcode.Invalid, "--incident is %d, must be 0 (the start of the job) or more", *only)
		}
		all, err := waterfall.Traces(v, *only)
		if err != nil {
			return err
		}
		unreadable := 0
		err = s.Spans(ctx, func(otlp []byte) error {
			spans, err := waterfall.Decode(otlp)
			if err != nil {
				unreadable++ // any client may write spans; the others are still shown
				return nil   //nolint:nilerr // counted
			}
			if !s.Exact {
				escape.All(&spans)
			}
			waterfall.Sort(all, spans)
			return nil
		})
		if err != nil {
			return err
		}
		if unreadable > 0 {
			fmt.Fprintf(env.Err, "%s could not be read\n", english.Plural(unreadable, "stored message"))
		}
		if written, err := form.Write(env.Out, all); written {
			return err
		}
		d := screen.Waterfall{Palette: s.Palette, Width: env.Width, ASCII: *ascii}
		for i, one := range all {
			if i > 0 {
				fmt.Fprintln(env.Out)
			}
			if err := d.Draw(env.Out, one.Title+"  trace "+one.Trace, one.Spans); err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}

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
		t := view.NewTimeline(all, env.Now())
		if written, err := form.Write(env.Out, t); written {
			return err
		}
		return screen.Gantt{Palette: s.Palette, Width: env.Width, ASCII: *ascii}.Draw(env.Out, t)
	})
	return cmd
}
