package run

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

// planned is the answer of regroup plan, for programs.
type planned struct {
	Job    string `json:"job"`
	Starts bool   `json:"starts"` // at once, with places
	plan.Forecast
	Silent bool `json:"silent,omitempty"` // no scheduler answers: it would start when one does
}

// PlanCommand returns regroup plan.
func PlanCommand(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "plan -f job.yaml | [flags] -- CMD ARGS...", Short: "Say whether a job would start now, or what it would wait for",
		Long:    "Says whether a job would start at once and where, or for what it would wait: for which slots, behind how many jobs, and which job's end would let it start. The scheduler's own rules are run ahead, on the nodes and jobs as they are; nothing is submitted, and nothing is kept for the job. The description of the job is checked as by regroup submit.",
		Example: command.Examples("regroup plan -f job.yaml", "regroup plan --workers 8 --gpu H100 -- python train.py", "regroup plan -f job.yaml -o json | jq .starts"),
	}
	given := describe(cmd)
	form := command.Output(cmd, command.Text, command.JSON, command.YAML)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		job, err := given.read(env, cmd.Name(), form, args)
		if err != nil {
			return err
		}
		c, done, err := env.Client(cmd)
		if err != nil {
			return err
		}
		defer done()
		p := planned{Job: job.Name}
		if p.Forecast, err = c.Forecast(cmd.Context(), job); err != nil {
			return err
		}
		p.Starts = len(p.Places) > 0
		p.Silent = slices.Contains(c.Silent(cmd.Context()), events.ServiceScheduler)
		if written, err := form.Write(env.Out, p); written {
			return err
		}
		return p.write(env.Out)
	}
	return command.WithUsage(cmd)
}

func (p planned) write(out io.Writer) error {
	var lines []string
	wanted := english.Plural(p.Workers.Max, "worker")
	if p.Workers.Min < p.Workers.Max {
		wanted = fmt.Sprint(p.Workers.Min, " to ", wanted)
	}
	switch {
	case p.Starts:
		lines = append(lines, fmt.Sprintf("%s would start at once with %d of %s: %s", p.Job, len(p.Places), wanted, byNode(p.Places)))
		if p.Waiting != "" {
			lines = append(lines, "It "+p.Waiting+".")
		}
	default:
		lines = append(lines, fmt.Sprintf("%s would wait: it %s.", p.Job, strings.TrimSuffix(p.Waiting, ", is queued")))
		if p.Ahead > 0 {
			lines = append(lines, fmt.Sprintf("It would be number %d in the queue.", p.Ahead+1))
		}
		lines = append(lines, p.until())
	}
	if p.Silent {
		lines = append(lines, "No scheduler answers: until one does nothing starts.")
	}
	_, err := fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}

// endsShown is how many jobs are named of which any may end.
const endsShown = 5

// until says what would let a job that waits start.
func (p planned) until() string {
	switch n := len(p.Ends); {
	case n == 1:
		return fmt.Sprintf("It would start when %s ends.", p.Ends[0])
	case n > 1:
		var names []string
		for _, id := range p.Ends[:min(n, endsShown)] {
			names = append(names, string(id))
		}
		if n > endsShown {
			names = append(names, fmt.Sprintf("%d others", n-endsShown))
		}
		return fmt.Sprintf("It would start when any of these ends: %s.", strings.Join(names, ", "))
	case p.Ended > 0:
		return fmt.Sprintf("It would start when %s have ended, if the oldest ends first.", english.Plural(p.Ended, "job"))
	}
	return "It would not start on these nodes, whatever ends."
}

// byNode says how many places are on each node, as node-a 4, node-b 2.
func byNode(places ident.Places) string {
	number := map[ident.NodeID]int{}
	var nodes []ident.NodeID
	for _, p := range places {
		if number[p.Node]++; number[p.Node] == 1 {
			nodes = append(nodes, p.Node)
		}
	}
	slices.SortFunc(nodes, func(a, b ident.NodeID) int { return cmp.Or(number[b]-number[a], strings.Compare(string(a), string(b))) })
	said := make([]string, len(nodes))
	for i, n := range nodes {
		said[i] = fmt.Sprintf("%s %d", n, number[n])
	}
	return strings.Join(said, ", ")
}
