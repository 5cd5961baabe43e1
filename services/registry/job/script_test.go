package job_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/internal/golden"
	"github.com/regroup-io/regroup/services/controller/controllertest"
	"github.com/regroup-io/regroup/services/registry/job"
)

const demo = ident.JobID("demo-0001")

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is one job under a machine, with the state that a controller would hold.
type world struct {
	m      job.Machine
	s      job.State
	now    time.Time
	n      int
	facts  []events.Body
	trace  string // of the next input, if it is not the derived one
	source string // of all inputs, if it is not /test
}

// clientTrace is the trace of a client that has its own.
const clientTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func newWorld() *world {
	return &world{s: job.Machine{}.New(string(demo)), now: epoch}
}

// step applies one input and, like a controller, stores and reloads the state.
func (w *world) step(t testing.TB, b events.Body, number uint64) events.Decision {
	t.Helper()
	w.n++
	in := events.Input{ID: "in" + strconv.Itoa(w.n), Source: cmp.Or(w.source, "/test"), Number: number, Trace: tracing.JobTrace(demo), Body: b}
	if w.s.LastGood > 0 { // as the rendezvous and the agents derive it
		in.Trace = tracing.IncidentTrace(demo, w.s.LastGood)
	}
	if w.trace != "" {
		in.Trace, w.trace = w.trace, ""
	}
	var d events.Decision
	w.s, d = w.m.Step(w.s, in, w.now)
	w.s = controllertest.Reload(t, w.s)
	for _, f := range d.Facts {
		w.facts = append(w.facts, f.Body)
	}
	return d
}

// wait advances the time, with a tick at every deadline on the way.
func (w *world) wait(t testing.TB, d time.Duration, each func(events.Decision)) {
	t.Helper()
	until := w.now.Add(d)
	for range 100 {
		next := w.m.Deadline(w.s)
		if next.IsZero() || next.After(until) {
			w.now = until
			return
		}
		if next.After(w.now) {
			w.now = next
		}
		each(w.step(t, events.Tick{}, 0))
	}
	t.Fatalf("deadline %v does not move: %+v", w.m.Deadline(w.s), w.s)
}

// TestScripts runs testdata/*.txt: lines after ">" are inputs, the rest is their expected output.
func TestScripts(t *testing.T) { golden.Scripts(t, play) }

func play(t *testing.T, script string) string {
	t.Helper()
	var out strings.Builder
	w := newWorld()
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "#"):
			fmt.Fprintln(&out, line)
		case strings.HasPrefix(line, ">"):
			fmt.Fprintln(&out, "\n"+line)
			words := strings.Fields(line[1:])
			if words[0] == "wait" {
				d, err := time.ParseDuration(words[1])
				if err != nil {
					t.Fatal(err)
				}
				w.wait(t, d, func(d events.Decision) { show(&out, d) })
			} else {
				body, number := parse(t, words)
				if slices.Contains(words, "client") {
					w.trace = clientTrace
				}
				show(&out, w.step(t, body, number))
			}
			fmt.Fprintln(&out, status(w.s.View))
		}
	}
	return out.String()
}

// show formats a decision: facts without their common fields, refusals, spans.
func show(out *strings.Builder, d events.Decision) {
	for _, f := range d.Facts {
		raw, _ := json.Marshal(f.Body)
		var m map[string]any
		_ = json.Unmarshal(raw, &m)
		for _, noise := range []string{"job", "spec", "trace", "trace_id", "command", "by"} {
			delete(m, noise)
		}
		entry := strings.TrimSuffix(strings.TrimPrefix(string(f.Body.Type()), "dev.regroup."), ".v1")
		var fields []string
		for _, k := range slices.Sorted(maps.Keys(m)) {
			v, _ := json.Marshal(m[k])
			fields = append(fields, k+"="+string(v))
		}
		fmt.Fprintln(out, strings.TrimSpace("  "+entry+" "+strings.Join(fields, " ")))
	}
	if d.Refusal != nil {
		fmt.Fprintf(out, "refused, %s: %s\n", errcode.Of(d.Refusal), strings.ReplaceAll(d.Refusal.Error(), "\n", " | "))
	}
	for _, s := range d.Spans {
		fmt.Fprintf(out, "span %q %s %s", s.Name, s.End.Sub(s.Start), under(s))
		for _, l := range s.Links {
			fmt.Fprintf(out, ", leads to %s", strings.TrimPrefix(under(events.Span{Parent: l}), "in "))
		}
		fmt.Fprintln(out)
	}
	if d.Forget {
		fmt.Fprintln(out, "(forgotten)")
	}
}

// under returns the trace that a span belongs to.
func under(s events.Span) string {
	at := map[string]string{
		tracing.JobTrace(demo): "the start", clientTrace: "the client's own",
	}
	for _, node := range []ident.NodeID{"a", "b", "c"} {
		for _, inc := range []ident.Incarnation{"A0", "A1", "A2", "A3", "B1", "B2"} {
			at[tracing.NodeTrace(node, inc)] = fmt.Sprintf("the loss of %s under %s", node, inc)
		}
	}
	for g := range ident.Generation(10) {
		at[tracing.IncidentTrace(demo, g)] = "the incident after " + g.String()
	}
	switch {
	case at[s.Parent] != "" && s.Self == "":
		return "in " + at[s.Parent]
	case at[s.Self] != "" && s.Parent == "":
		return "is " + at[s.Self]
	}
	return fmt.Sprintf("astray: parent %q, self %q", s.Parent, s.Self)
}

func status(v events.JobView) string {
	state := string(v.State)
	if state == "" {
		state = "unknown"
	}
	var ws []string
	for _, w := range v.Workers {
		rank := ""
		if w.Rank >= 0 {
			rank = fmt.Sprintf(" rank %d of %s", w.Rank, w.Generation)
		}
		if w.State == tables.WorkerStateStopped && w.Detail != "" {
			rank += " (" + w.Detail + ")"
		}
		ws = append(ws, fmt.Sprintf("%s %s %s%s", w.Place, w.Incarnation, w.State, rank))
	}
	s := "= " + state
	if v.Generation > 0 {
		s += " " + v.Generation.String()
		g := v.Generations[len(v.Generations)-1]
		s += fmt.Sprintf(" [of %d: %d ready, %d success, %d failure]", g.World, g.Reported.Ready, g.Reported.Success, g.Reported.Failure)
		if n := len(v.Generations); n > 1 { // of late facts
			g = v.Generations[n-2]
			s += fmt.Sprintf(" after %s [of %d: %d, %d, %d]", g.Generation, g.World, g.Reported.Ready, g.Reported.Success, g.Reported.Failure)
		}
	}
	if v.Slowest != nil {
		s += fmt.Sprintf(" slowest is %d", v.Slowest.Rank)
	}
	if r := v.Redundancy; r != nil {
		s += fmt.Sprintf(" step %d survives %d in %s", r.Commit.Step, r.Losses, r.Generation)
	}
	if v.Reason != "" {
		s += fmt.Sprintf(" (%s)", v.Reason)
	}
	if len(ws) > 0 {
		s += ": " + strings.Join(ws, ", ")
	}
	return s
}
