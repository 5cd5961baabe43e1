package job

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/guptarohit/asciigraph"
	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/internal/escape"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// chartHeight is the height of a curve, in lines.
const chartHeight = 8

func metrics(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "metrics [JOB]", Short: "Draw the values that a job's program has reported", Args: command.AtMost("JOB"),
		Long:    "Draws the course of each value that the program of a job has reported, and of its steps per second, over the steps, with the generations below. A point is kept every 5 s at most, more rarely the longer a job runs. Without a name it is about the job that was submitted last.",
		Example: command.Examples("regroup metrics mnist", "regroup metrics mnist --name loss --name accuracy", "regroup metrics mnist -o json | jq '.[].points[-1]'"),
	}
	names := cmd.Flags().StringSlice("name", nil, "only this value; may be repeated")
	form := command.Reading(cmd, command.Text, command.JSON, command.YAML)
	cmd.RunE = onJob(env, func(ctx context.Context, s command.Session, v events.JobView) error {
		var facts []events.Event
		err := s.Facts(ctx, v.Job, func(e events.Event) error {
			if _, ok := e.Body.(events.JobProgressed); ok {
				facts = append(facts, e)
			}
			return nil
		})
		if err != nil {
			return err
		}
		all := view.Curves(facts)
		steps := len(all) == 0 && len(facts) > 0
		if len(*names) > 0 {
			all = slices.DeleteFunc(all, func(c view.Curve) bool { return !slices.Contains(*names, c.Name) })
		}
		if !s.Exact {
			escape.All(&all)
		}
		if written, err := form.Write(env.Out, all); written {
			return err
		}
		if len(all) == 0 {
			_, err := fmt.Fprintf(env.Out, "%s %s\n", v.Job, noCurve(len(facts) == 0, steps))
			return err
		}
		for _, c := range all {
			if err := drawCurve(env.Out, c, s.Palette, env.Width); err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}

// noCurve says why there is nothing to draw of a job: it has reported nothing, or its steps alone,
// of which one point is kept so far, or not what was asked for.
func noCurve(never, steps bool) string {
	switch {
	case never:
		return "has reported no values: its program says regroup.report(step=..., loss=...) in Python, elastic.Report in Go"
	case steps:
		return "has reported its steps alone, and has too few points for their rate: one is kept every 5 s at most"
	}
	return "has reported no such values"
}

// drawCurve draws a curve and, below it, where each generation begins. width is that of the
// terminal; 0 = unknown.
func drawCurve(w io.Writer, c view.Curve, p screen.Palette, width int) error {
	if width == 0 {
		width = 80
	}
	last := c.Points[len(c.Points)-1]
	from := "of the job"
	if last.Rank >= 0 {
		from = fmt.Sprintf("rank %d", last.Rank)
	}
	title := fmt.Sprintf("%s %.6g  (step %d, %s, %s of steps %d to %d)", p.Head(c.Name), last.Value, last.Step, from,
		english.Plural(len(c.Points), "point"), c.Points[0].Step, last.Step)
	if len(c.Points) == 1 {
		_, err := fmt.Fprintf(w, "%s\n\n", title)
		return err
	}
	values := make([]float64, len(c.Points))
	for i, point := range c.Points {
		values[i] = point.Value
	}
	label := func(v float64) string { return fmt.Sprintf("%10.4g", v) }
	columns := max(width-14, 20)
	chart := asciigraph.Plot(values, asciigraph.Height(chartHeight), asciigraph.Width(columns), asciigraph.YAxisValueFormatter(label))
	_, err := fmt.Fprintf(w, "%s\n%s\n%s\n\n", title, chart, p.Faint(strings.Repeat(" ", 12)+generationLine(c.Points, columns)))
	return err
}

// generationLine is a line with the names of the generations, each below its first point, as far as
// there is room.
func generationLine(points []view.CurvePoint, columns int) string {
	line := []byte(strings.Repeat(" ", columns))
	free := 0
	for i, p := range points {
		if i > 0 && p.Generation == points[i-1].Generation {
			continue
		}
		at, name := i*(columns-1)/(len(points)-1), p.Generation.String()
		if at >= free && at+len(name) <= columns {
			copy(line[at:], name)
			free = at + len(name) + 1
		}
	}
	return strings.TrimRight(string(line), " ")
}
