package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/traces/tree"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/events/tracing"
)

// checker collects what is wrong.
type checker struct {
	*story
	traces map[string][]tree.Span
	faults []string
}

func (c *checker) say(format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

// check reads all traces and checks them.
func (s *story) check(ctx context.Context, j *jaeger) error {
	c := &checker{story: s, traces: map[string][]tree.Span{}}
	start := tracing.TraceID(tracing.JobTrace(s.job))
	script := tracing.TraceID(tracing.JobTrace(s.script))
	ids := []string{s.client, start, script}
	for _, i := range s.all {
		ids = append(ids, i.TraceID)
	}
	for n := 0; n < len(ids); n++ { // it grows by the traces that links lead to
		id := ids[n]
		spans, err := settled(ctx, j, id)
		if err != nil {
			return err
		}
		c.traces[id] = spans
		for _, fault := range tree.Faults(id, spans) {
			c.say("trace %s: %s", id, fault)
		}
		for _, s := range spans {
			for _, l := range s.Links {
				if !slices.Contains(ids, l.Trace) {
					ids = append(ids, l.Trace)
				}
			}
		}
	}
	c.links()
	c.services(s.client, "client", "gateway", "registry")
	c.services(start, "agent", "registry", "rendezvous", "scheduler", "worker", "trainer")
	c.own(start, s.killed[0])
	c.program(script)
	for n, i := range s.crashes {
		c.services(i.TraceID, "agent", "registry", "rendezvous", "worker", "trainer")
		c.incident(i, s.killed[n])
	}
	c.own(s.crashes[0].TraceID, s.killed[1])
	for _, id := range ids {
		fmt.Println(summary(id, c.traces[id]))
	}
	if len(c.faults) > 0 {
		return fmt.Errorf("%d faults:\n  %s", len(c.faults), strings.Join(c.faults, "\n  "))
	}
	fmt.Printf("%d traces: each is one tree, no parent or link is missing, the killed workers have their exits\n", len(ids))
	return nil
}

// settled returns the spans of a trace when it has a root: all processes have sent theirs, and what
// remains is that Jaeger stores them.
func settled(ctx context.Context, j *jaeger, id string) (spans []tree.Span, err error) {
	return spans, cluster.Until(ctx, func() (bool, error) {
		before := len(spans)
		if spans, err = j.trace(ctx, id); err != nil {
			return false, err
		}
		rooted := slices.ContainsFunc(spans, func(s tree.Span) bool { return s.Parent == "" })
		return rooted && len(spans) == before, fmt.Errorf("trace %s has no root among %d spans", id, len(spans))
	})
}

// links checks that every link leads to a span that is stored.
func (c *checker) links() {
	for id, spans := range c.traces {
		for _, s := range spans {
			for _, l := range s.Links {
				if !slices.ContainsFunc(c.traces[l.Trace], func(o tree.Span) bool { return o.Ref == l }) {
					c.say("trace %s: %s leads to %s of trace %s, which is not there", id, s, l.ID, l.Trace)
				}
			}
		}
	}
}

// services checks that a trace has spans of these services, and of no other job.
func (c *checker) services(id string, want ...string) {
	have := map[string]bool{}
	for _, s := range c.traces[id] {
		have[s.Service] = true
		if job, ok := s.Attributes["regroup.job.id"]; ok && job != string(c.job) {
			c.say("trace %s: %s is of the job %s", id, s, job)
		}
	}
	for _, w := range want {
		if !have[w] {
			c.say("trace %s has no span of %s, but of %q", id, w, slices.Sorted(maps.Keys(have)))
		}
	}
}

// one returns the only span of a service with a name that ok accepts.
func (c *checker) one(id, service, name string, ok func(tree.Span) bool) tree.Span {
	found := slices.DeleteFunc(tree.Named(c.traces[id], service, name), func(s tree.Span) bool { return !ok(s) })
	if len(found) != 1 {
		c.say("trace %s has %d spans %q of %s, not one: %v", id, len(found), name, service, found)
		return tree.Span{}
	}
	return found[0]
}

func always(tree.Span) bool { return true }

// of accepts the spans of one process.
func of(w tables.WorkerView) func(tree.Span) bool {
	return func(s tree.Span) bool { return s.Attributes["process.pid"] == fmt.Sprint(w.PID) }
}

// traceOf returns the trace of the incident that led to a generation, or of the start.
func (c *checker) traceOf(g ident.Generation, start string) string {
	for _, i := range c.all {
		if i.To == g {
			return i.TraceID
		}
	}
	return start
}

// own checks the run of a worker that was killed, in the trace in which it was started: it is
// closed with its exit, and the spans of its program are below it and within it.
func (c *checker) own(id string, w tables.WorkerView) {
	run := c.one(id, "worker", "worker process", of(w))
	in := c.traceOf(w.Generation, id)
	part := c.one(in, "worker", "generation "+w.Generation.String(), of(w))
	for _, s := range []tree.Span{run, part} {
		if s.Error != "killed by signal 9 (SIGKILL)" || s.Attributes["process.exit.code"] != "-1" || s.Attributes["regroup.exit.signal"] != "SIGKILL" ||
			s.Attributes["regroup.generation"] != w.Generation.String() || s.Attributes["regroup.rank"] != fmt.Sprint(w.Rank) {
			c.say("trace %s: %s is not closed with the exit of its process: status %q, %v", id, s, s.Error, s.Attributes)
		}
	}
	steps := 0
	for _, s := range tree.Named(c.traces[in], "trainer", "steps") {
		if s.Parent == part.ID {
			steps++
			if !tree.Within(s, part) {
				c.say("trace %s: %s of the program is not within its worker's", id, s)
			}
		}
	}
	if steps == 0 {
		c.say("trace %s: the program of %s has no span below it", id, part)
	}
	if part.Parent != run.ID && !slices.Contains(part.Links, run.Ref) {
		c.say("trace %s: %s does not lead to its process", id, part)
	}
}

// incident checks the trace of an incident: from the exit to the first step, in order.
func (c *checker) incident(i events.IncidentClosed, w tables.WorkerView) {
	id, g := i.TraceID, i.To.String()
	root := c.one(id, "registry", "incident", always)
	detect := c.one(id, "agent", "detect worker.exited", of(w))
	if detect.Attributes["regroup.exit.signal"] != "SIGKILL" || detect.Error == "" || len(detect.Links) != 2 {
		c.say("trace %s: the detection does not say what happened: status %q, links %v, %v", id, detect.Error, detect.Links, detect.Attributes)
	}
	order := []tree.Span{root, detect, c.one(id, "registry", "process worker.exited", always)}
	sealed := c.one(id, "rendezvous", "rendezvous "+g, always)
	for _, s := range tree.Named(c.traces[id], "worker", "generation "+g) {
		order = append(order, s)
		if s.Start.Before(sealed.Start) {
			c.say("trace %s: %s begins before its generation was formed", id, s)
		}
	}
	if len(order) != 3+world-1 {
		c.say("trace %s: %d workers are in the generation after the incident, not %d survivors", id, len(order)-3, world-1)
	}
	for n := 1; n < len(order); n++ {
		if !tree.Before(order[0], order[n]) {
			c.say("trace %s: %s begins before %s", id, order[n], order[0])
		}
	}
	if steps := tree.Named(c.traces[id], "worker", "first step"); len(steps) != world-1 || !tree.Within(steps[0], root) {
		c.say("trace %s: first steps %v do not end the incident", id, steps)
	}
}

// summary tells how many spans of each name a trace has.
func summary(id string, spans []tree.Span) string {
	count := map[string]int{}
	for _, s := range spans {
		count[s.Service+" "+s.Name]++
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d %s", count[name], name))
	}
	return fmt.Sprintf("trace %s, %d spans: %s", id, len(spans), strings.Join(parts, ", "))
}
