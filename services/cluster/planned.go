package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

// Planned is what would happen to a job that were submitted now.
type Planned struct {
	Job    string `json:"job"`
	Starts bool   `json:"starts"` // at once, with places
	plan.Forecast
	Silent bool `json:"silent,omitempty"` // no scheduler answers: it would start when one does
}

// Text says it in a few sentences, each on a line of its own.
func (p Planned) Text() string {
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
		why := strings.Replace(p.Waiting, ", is number ", ", would be number ", 1) // in the queue
		lines = append(lines, fmt.Sprintf("%s would wait: it %s.", p.Job, why))
		if p.Ahead > 0 && why == p.Waiting {
			lines = append(lines, fmt.Sprintf("It would be number %d in the queue.", p.Ahead+1))
		}
		lines = append(lines, p.until())
	}
	if p.Silent {
		lines = append(lines, "No scheduler answers: until one does nothing starts.")
	}
	return strings.Join(lines, "\n")
}

// endsShown is how many jobs are named of which any may end.
const endsShown = 5

// until says what would let a job that waits start.
func (p Planned) until() string {
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
