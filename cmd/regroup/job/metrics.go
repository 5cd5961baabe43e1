package job

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/guptarohit/asciigraph"
	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/cmd/regroup/internal/visible"
	"github.com/regroup-io/regroup/events"
)

// curve is the course of one value.
type curve struct {
	Name   string       `json:"name"`
	Points []curvePoint `json:"points"`
}

type curvePoint struct {
	Time       time.Time         `json:"time"` // of the event
	Generation events.Generation `json:"generation"`
	Step       uint64            `json:"step"`
	Value      float64           `json:"value"`
	Rank       int               `json:"rank"` // of the worker that reported it; -1 = of the whole job
}

// stepRate is the name of the curve that is computed from the steps.
const stepRate = "steps/s"

// chartHeight is the height of a curve, in lines.
const chartHeight = 8

func metrics(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "metrics [JOB]", Short: "Draw the values that a job's program has reported", Args: command.AtMost("JOB"),
		Long:    "Draws the course of each value that the program of a job has reported, and of its steps per second, over the steps, with the generations below. A point is kept every 5 s at most, more rarely the longer a job runs. Without a name it is about the job that was submitted last.",
		Example: command.Examples("regroup metrics mnist", "regroup metrics mnist --name loss --name accuracy", "regroup metrics mnist -o json | jq '.[].points[-1]'"),
	}
	names := cmd.Flags().StringSlice("name", nil, "only this value; may be repeated")
	form := command.Output(cmd, command.Text, command.JSON, command.YAML)
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
		all := curves(facts)
		if len(*names) > 0 {
			all = slices.DeleteFunc(all, func(c curve) bool { return !slices.Contains(*names, c.Name) })
		}
		if !s.Exact {
			visible.Escape(&all)
		}
		if written, err := form.Write(env.Out, all); written {
			return err
		}
		if len(all) == 0 {
			_, err := fmt.Fprintf(env.Out, "%s has reported no such values%s\n", v.Job, howToReport(len(facts) == 0))
			return err
		}
		for _, c := range all {
			if err := c.draw(env.Out, s.Palette, env.Width); err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}

func howToReport(never bool) string {
	if !never {
		return ""
	}
	return ": its program says regroup.report(step=..., loss=...) in Python, elastic.Report in Go"
}

// curves returns the course of each value, by name, with that of the steps first.
func curves(facts []events.Event) []curve {
	points := map[string][]curvePoint{}
	for i, e := range facts {
		b := e.Body.(events.JobProgressed)
		for name, m := range b.Values {
			all := points[name]
			if n := len(all); n > 0 && all[n-1].Step == m.Step && all[n-1].Value == m.Value && all[n-1].Rank == m.Rank {
				continue // not reported again
			}
			points[name] = append(all, curvePoint{e.Time, b.Generation, m.Step, m.Value, m.Rank})
		}
		if i == 0 {
			continue
		}
		last := facts[i-1].Body.(events.JobProgressed)
		if took := e.Time.Sub(facts[i-1].Time).Seconds(); took > 0 && b.Step > last.Step {
			points[stepRate] = append(points[stepRate], curvePoint{e.Time, b.Generation, b.Step, float64(b.Step-last.Step) / took, -1})
		}
	}
	var all []curve
	for _, name := range slices.Sorted(maps.Keys(points)) {
		all = append(all, curve{name, points[name]})
	}
	slices.SortStableFunc(all, func(a, b curve) int {
		switch stepRate {
		case a.Name:
			return -1
		case b.Name:
			return 1
		}
		return 0
	})
	return all
}

// draw draws a curve and, below it, where each generation begins. width is that of the terminal;
// 0 = unknown.
func (c curve) draw(w io.Writer, p screen.Palette, width int) error {
	if width == 0 {
		width = 80
	}
	last := c.Points[len(c.Points)-1]
	from := "of the job"
	if last.Rank >= 0 {
		from = fmt.Sprintf("rank %d", last.Rank)
	}
	title := fmt.Sprintf("%s %.6g  (step %d, %s, %s of steps %d to %d)", p.Head(c.Name), last.Value, last.Step, from,
		screen.Plural(len(c.Points), "point"), c.Points[0].Step, last.Step)
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
	_, err := fmt.Fprintf(w, "%s\n%s\n%s\n\n", title, chart, p.Faint(strings.Repeat(" ", 12)+c.generations(columns)))
	return err
}

// generations is a line with the names of the generations, each below its first point, as far as
// there is room.
func (c curve) generations(columns int) string {
	line := []byte(strings.Repeat(" ", columns))
	free := 0
	for i, p := range c.Points {
		if i > 0 && p.Generation == c.Points[i-1].Generation {
			continue
		}
		at, name := i*(columns-1)/(len(c.Points)-1), p.Generation.String()
		if at >= free && at+len(name) <= columns {
			copy(line[at:], name)
			free = at + len(name) + 1
		}
	}
	return strings.TrimRight(string(line), " ")
}
