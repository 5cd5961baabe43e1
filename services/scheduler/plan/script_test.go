package plan_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/internal/golden"
	"github.com/regroup-io/regroup/services/controller/controllertest"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// TestScripts runs testdata/*.txt: commands, a line of dashes, and the expected output. A command
// may end in #N, the number of the fact.
func TestScripts(t *testing.T) {
	golden.Scripts(t, func(t *testing.T, script string) string {
		p := &pool{s: plan.Machine{}.New(events.PoolKey)}
		return golden.Blocks(script, func(line string) string { return p.do(t, line) })
	})
}

type pool struct{ s plan.State }

func (p *pool) do(t *testing.T, line string) string {
	t.Helper()
	if line == "pool" {
		return p.rows()
	}
	in, err := parse(line)
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	s, d := plan.Machine{}.Step(controllertest.Reload(t, p.s), in, noon)
	p.s = s
	return printed(d)
}

// parse parses a command: submit job min:max [in-process] [multiple=N] with gpu=MODEL or gpu=any
// and memory=80GB for its GPU, scale job min:max, end job,
// removed job, or opened or closed job N/gM (its Nth incident, after generation M), or joined,
// suspected, recovered, draining, lost, left with a node, slots=N and an incarnation, or
// quarantined, released, changed with those. Other attributes of a node are set by quarantine=1m,
// quarantined=SLOT,SLOT (for a minute), excluded, line=N of the host list, state=S, drains,
// gpus=2xH100,1xT4 of its slots.
func parse(line string) (in events.Input, err error) {
	line, number, ok := strings.Cut(line, " #")
	if ok {
		if in.Number, err = strconv.ParseUint(number, 10, 64); err != nil {
			return in, err
		}
	}
	w := strings.Fields(line)
	if len(w) < 2 {
		return in, fmt.Errorf("needs an object")
	}
	job := ident.JobID(w[1])
	f := events.NodeFact{Node: ident.NodeID(w[1]), Incarnation: "A", Slots: 2}
	var workers spec.Workers
	recovery := spec.RecoveryRestart
	var elastic spec.Elastic
	var gpu *spec.GPU
	for _, arg := range w[2:] {
		switch {
		case strings.HasPrefix(arg, "slots="):
			_, err = fmt.Sscanf(arg, "slots=%d", &f.Slots)
		case strings.HasPrefix(arg, "multiple="):
			_, err = fmt.Sscanf(arg, "multiple=%d", &elastic.MultipleOf)
		case strings.HasPrefix(arg, "gpu="), strings.HasPrefix(arg, "memory="):
			if gpu == nil {
				gpu = &spec.GPU{}
			}
			if model, ok := strings.CutPrefix(arg, "gpu="); ok && model != "any" {
				gpu.Model = model
			} else if !ok {
				gpu.Memory = spec.GPUMemory(strings.TrimPrefix(arg, "memory="))
			}
		case strings.Contains(arg, "="), arg == "excluded", arg == "drains":
			err = attribute(&f, arg)
		case arg == "in-process":
			recovery = spec.RecoveryInProcess
		case strings.Contains(arg, ":"):
			_, err = fmt.Sscanf(arg, "%d:%d", &workers.Min, &workers.Max)
		default:
			f.Incarnation = ident.Incarnation(arg)
		}
		if err != nil {
			return in, err
		}
	}
	switch w[0] {
	case "submit":
		in.Body = events.JobSubmitted{Job: job, Spec: spec.Job{Name: w[1], Workers: workers, Recovery: recovery, Elastic: elastic, GPU: gpu}}
	case "scale":
		in.Body = events.JobScaled{Job: job, Workers: workers}
	case "end":
		in.Body = events.JobStopped{JobEnd: events.JobEnd{Job: job}}
	case "removed":
		in.Body = events.JobRemoved{Job: job}
	case "joined":
		in.Body = events.NodeJoined{NodeFact: f}
	case "opened", "closed":
		var n int
		var after ident.Generation
		if _, err = fmt.Sscanf(w[2], "%d/g%d", &n, &after); err != nil {
			return in, err
		}
		in.Body = events.IncidentClosed{Job: job, Incident: n, From: after}
		if w[0] == "opened" {
			in.Body = events.IncidentOpened{Job: job, Incident: n, From: after, Trace: tracing.IncidentTrace(job, after), Cause: events.Cause{Node: "node-a"}}
		}
	case "quarantined":
		in.Body = events.NodeQuarantined{NodeFact: f}
	case "released":
		in.Body = events.NodeReleased{NodeFact: f}
	case "changed":
		in.Body = events.NodeChanged{NodeFact: f}
	case "suspected":
		in.Body = events.NodeSuspected{NodeFact: f}
	case "recovered":
		in.Body = events.NodeRecovered{NodeFact: f}
	case "draining":
		in.Body = events.NodeDraining{NodeFact: f}
	case "lost":
		in.Body = events.NodeLost{NodeFact: f}
	case "left":
		in.Body = events.NodeLeft{NodeFact: f}
	default:
		return in, fmt.Errorf("unknown command")
	}
	return in, nil
}

// attribute parses an attribute of a node other than its state.
func attribute(f *events.NodeFact, arg string) error {
	name, value, _ := strings.Cut(arg, "=")
	switch name {
	case "quarantine":
		d, err := time.ParseDuration(value)
		f.Quarantine = &events.Quarantine{Since: noon, Until: noon.Add(d), Reason: "lost 3 times within 10m", Count: 1}
		return err
	case "quarantined":
		for number := range strings.SplitSeq(value, ",") {
			b := events.QuarantinedSlot{Quarantine: events.Quarantine{Since: noon, Until: noon.Add(time.Minute), Reason: "3 failures within 10m", Count: 1}}
			if _, err := fmt.Sscan(number, &b.Slot); err != nil {
				return err
			}
			f.QuarantinedSlots = append(f.QuarantinedSlots, b)
		}
	case "gpus":
		for run := range strings.SplitSeq(value, ",") {
			count, model, _ := strings.Cut(run, "x")
			g := map[string]devices.Slots{
				"H100": {Model: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559}, "A100": {Model: "NVIDIA A100-SXM4-40GB", MemoryMiB: 40960},
				"T4": {Model: "Tesla T4", MemoryMiB: 15360},
			}[model]
			if _, err := fmt.Sscan(count, &g.Count); err != nil {
				return err
			}
			f.GPUs = append(f.GPUs, g)
		}
	case "excluded":
		f.Excluded = "is not in the host list"
	case "state":
		f.State = events.NodeState(value)
	case "drains":
		f.Drains = true
	case "line":
		_, err := fmt.Sscan(value, &f.Order)
		return err
	default:
		return fmt.Errorf("unknown argument %s", arg)
	}
	return nil
}

func printed(d events.Decision) string {
	var b strings.Builder
	for _, f := range d.Facts {
		fmt.Fprintf(&b, "%s %s", f.Entity, f.Body.Type().Kind())
		switch body := f.Body.(type) {
		case events.PlacementSet:
			fmt.Fprintf(&b, " %v of %d:%d: %s", body.Places, body.Workers.Min, body.Workers.Max, body.Reason)
			if len(body.LostNodes) > 0 {
				fmt.Fprintf(&b, " (gone: %v with %v)", body.LostNodes, body.LostAgents)
			}
			if body.Hosts != nil {
				fmt.Fprintf(&b, " (hosts: %v)", body.Hosts)
			}
			if f.Trace != "" {
				fmt.Fprintf(&b, " (in %s)", trace(f.Entity, f.Trace))
			}
		case events.PlacementWaiting:
			fmt.Fprintf(&b, " (need %d, free %d): %s", body.Need, body.Free, body.Reason)
		}
		b.WriteString("\n")
	}
	for _, s := range d.Spans {
		fmt.Fprintf(&b, "span %s of %s in %s: %s\n", s.Name, s.Attributes["regroup.job.id"], trace(s.Attributes["regroup.job.id"], s.Parent), s.Attributes["reason"])
	}
	if b.Len() == 0 {
		return "nothing to tell\n"
	}
	return b.String()
}

// trace names the trace of a job.
func trace(job, traceparent string) string {
	if traceparent == tracing.JobTrace(ident.JobID(job)) {
		return "its start"
	}
	for g := range ident.Generation(10) {
		if traceparent == tracing.IncidentTrace(ident.JobID(job), g) {
			return "the incident after " + g.String()
		}
	}
	return "no trace of its own: " + traceparent
}

// rows formats the public view.
func (p *pool) rows() string {
	var b strings.Builder
	for _, j := range p.s.Queue {
		row := p.s.View.Jobs[j.ID]
		fmt.Fprintf(&b, "= %s %v of %d:%d", j.ID, row.Places, row.Workers.Min, row.Workers.Max)
		if row.Waiting != "" {
			fmt.Fprintf(&b, ": %s", row.Waiting)
		}
		b.WriteString("\n")
	}
	if b.Len() == 0 {
		return "= no jobs\n"
	}
	return b.String()
}
