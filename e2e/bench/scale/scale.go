// Package scale measures the control plane with many agents. Brokers (three) and services (two
// replicas of each) are processes of bin/regroup. Agents are simulated: light clients that share a
// few connections, each with its own subscriptions. Such an agent sends hellos, heartbeats at the
// real interval with its launch revisions, answers pings, receives its launches and the notices,
// and joins for all its slots in one request, as the real one does under restart recovery. It
// starts no processes and publishes no facts about workers.
package scale

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/report"
	"github.com/regroup-io/regroup/events"
)

// Suite measures each number of agents.
func Suite(f *flag.FlagSet) func(context.Context, *report.Report) error {
	sizes := f.String("agents", "64,512,5000", "numbers of agents, of 8 slots each")
	trials := f.Int("trials", 7, "jobs for each number of agents")
	title := f.String("title", "Many agents", "of the section")
	return func(ctx context.Context, r *report.Report) error {
		t, costs := &report.Table{}, &strings.Builder{}
		kinds := append([]string{"nats"}, events.ServiceNames()...)
		for text := range strings.SplitSeq(*sizes, ",") {
			n, err := strconv.Atoi(text)
			if err != nil {
				return err
			}
			s, err := measure(ctx, r, n, *trials)
			if err != nil { // results so far are still written
				fmt.Fprintf(costs, "\nNot measured: %d agents: %s.\n", n, strings.ReplaceAll(err.Error(), "\n", ", "))
				return errors.Join(err, r.Section(*title, document(t, kinds, costs.String())))
			}
			s.rows(t)
			s.costs(costs, kinds)
		}
		return r.Section(*title, document(t, kinds, costs.String()))
	}
}

func document(t *report.Table, kinds []string, costs string) string {
	return fmt.Sprintf(`Three brokers and two replicas of each service are processes of their own, the agents are
simulated (%d slots each, heartbeats every %s, from a thousand agents on every second, above 2,500 every two); all of them share this machine.
The agents would have machines of their own: here the control plane runs at a lower priority (nice 5), so that heartbeats do not wait for what is measured.

%s
What an agent costs, all replicas together: processor time from the submit to the ranks, share of a core for heartbeats alone, resident memory of one replica.

| agents | form, ms per agent | processor, ms per agent | idle, %% of a core per 1000 agents | %s, MiB |
|---|---|---|---|%s
%s`, slots, heartbeat, t, strings.Join(kinds, ", MiB | "), strings.Repeat("---|", len(kinds)), costs)
}

func (s *size) rows(t *report.Table) {
	goal := map[int]string{512: "median 500 ms", 5000: "3000 ms"}[s.agents]
	if goal == "" {
		goal = "none"
	}
	what := fmt.Sprintf("%d agents, %d ranks: ", s.agents, s.agents*slots)
	t.Times(what+"from the placement to every agent holding its ranks, ms", s.form, goal)
	t.Times(what+"from one agent's notice of a failure to every agent having it, ms", s.notice, "median 100 ms")
	t.Times(what+"from the verdict that a node is lost to every other agent having heard that the generation is over, ms", s.lost, "none")
	t.Times(what+"from that verdict to every other agent holding its ranks in the next generation, ms", s.regain, "none")
}

// costs adds the row of what the control plane takes.
func (s *size) costs(b *strings.Builder, kinds []string) {
	var cpu time.Duration
	idle := 0.0
	for _, k := range kinds {
		cpu += s.cpu[k]
		idle += s.idle[k]
	}
	n := float64(s.agents)
	fmt.Fprintf(b, "| %d | %.2f | %.2f | %.1f |", s.agents, report.MS(report.Quantile(s.form, 0.5))/n, report.MS(cpu)/n/float64(len(s.form)), 1000*idle/n)
	for _, k := range kinds {
		replicas := 2.0
		if k == "nats" {
			replicas = 3
		}
		fmt.Fprintf(b, " %.0f |", s.last[k].Now/replicas)
	}
	b.WriteString("\n")
}
