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
	"github.com/regroup-io/regroup/services/cluster/timeline"
	"github.com/regroup-io/regroup/services/cluster/waterfall"
)

func trace(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "trace [JOB]", Short: "Draw the traces of a job's start and incidents", Args: command.AtMost("JOB"),
		Long:    "Draws one waterfall for the start of a job (incident 0) and one for each of its incidents: from the fault to the first good step, over every process that took part. No collector is needed: spans are kept beside the events. -o otlp writes them as OTLP in JSON, a request in each line, for a collector or Jaeger. Without a name it is about the job that was submitted last.",
		Example: command.Examples("regroup trace mnist", "regroup trace mnist --incident 2", "regroup trace mnist --incident 1 -o json | jq '.[].spans[].name'"),
	}
	only := cmd.Flags().Int("incident", -1, "only this one; 0 = the start of the job")
	ascii := cmd.Flags().Bool("ascii", false, "draw with plain characters")
	form := command.Reading(cmd, command.Text, command.JSON, command.YAML, command.OTLP)
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
			if form.Is(command.OTLP) {
				if line, err := waterfall.OTLP(otlp, all); err != nil {
					unreadable++
				} else if len(line) > 0 {
					_, err = fmt.Fprintf(env.Out, "%s\n", line)
					return err
				}
				return nil
			}
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
		if form.Is(command.OTLP) {
			return nil
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

func drawTimeline(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "timeline [JOB]", Short: "Draw what each worker did when", Args: command.AtMost("JOB"),
		Long:    "Draws one row for each life of a worker: training, waiting for the next generation, taking over state, death. Times are those of the machines' clocks; what nobody has observed is drawn as that. -o svg is a picture with a row for each slot, the incidents and their phases; -o perfetto is a file for ui.perfetto.dev and chrome://tracing. Without a name it is about the job that was submitted last.",
		Example: command.Examples("regroup timeline mnist", "regroup timeline mnist --ascii", "regroup timeline mnist -o svg > mnist.svg", "regroup timeline mnist -o json | jq .generations"),
	}
	ascii := cmd.Flags().Bool("ascii", false, "draw with plain characters")
	form := command.Reading(cmd, command.Text, command.JSON, command.YAML, command.SVG, command.Perfetto)
	cmd.RunE = chosen(env, theLast, func(ctx context.Context, s command.Session, v events.JobView) error {
		stale := s.StaleJobs(ctx, v)
		env.SayStale(stale)
		var all []events.Event
		err := s.Facts(ctx, v.Job, func(e events.Event) error {
			all = append(all, e)
			return nil
		})
		if err != nil {
			return err
		}
		t := timeline.New(all, env.Now())
		if len(stale) > 0 {
			t.UnobservedFrom(stale[0].AsOf)
		}
		switch {
		case form.Is(command.SVG):
			return timeline.SVG(env.Out, t)
		case form.Is(command.Perfetto):
			return timeline.Perfetto(env.Out, t)
		}
		if written, err := form.Write(env.Out, t); written {
			return err
		}
		return screen.Gantt{Palette: s.Palette, Width: env.Width, ASCII: *ascii}.Draw(env.Out, t)
	})
	return cmd
}
