package worker

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// traceName names the traces that occur in scripts, and the spans of workers in them.
func (p *player) traceName(tp string) string {
	const job = "mnist-7f3a"
	roots := map[string]string{"job": tracing.JobTrace(job)}
	for g := ident.Generation(1); g < 10; g++ {
		roots["incident-"+g.String()] = tracing.IncidentTrace(job, g)
	}
	for id, w := range p.names {
		if tp == tracing.WorkerTrace(id) {
			return "its own/" + w
		}
	}
	for name, root := range roots {
		if tracing.TraceID(root) != tracing.TraceID(tp) {
			continue
		}
		if tp == root {
			return name
		}
		names := maps.Clone(p.names)
		names["01OLD"] = "old"
		for id, w := range names {
			if tp == tracing.Child(root, "process", string(id)) {
				return name + "/" + w
			}
			for g := ident.Generation(1); g < 10; g++ {
				if tp == tracing.Child(root, "generation", string(id), g.String()) {
					return name + "/" + w + "/" + g.String()
				}
			}
		}
	}
	return tp
}

func (p *player) print(a Action) string {
	switch a := a.(type) {
	case StartProcess:
		n := p.name(a.Worker)
		p.envs[n] = a
		text := fmt.Sprintf("start %s at %s attempt %d %s: %s", n, a.Place, a.Attempt, a.Generation, strings.Join(a.Command, " "))
		if c := a.Context; c != nil {
			text += fmt.Sprintf(", GPU %d with %s", c.Device, strings.Join(c.Visible, " "))
		}
		return text
	case SignalProcess:
		return fmt.Sprintf("signal %s %s", p.name(a.Worker), a.Signal)
	case KillProcess:
		return "kill " + p.name(a.Worker)
	case ExamineProcess:
		return "examine " + p.name(a.Worker)
	case KeepSpares:
		if a.Count == 0 {
			return "end spares"
		}
		text := fmt.Sprintf("keep spares %d: %s, imported %s", a.Count, strings.Join(a.Command, " "), strings.Join(a.Preload, " "))
		for _, c := range a.Contexts {
			text += fmt.Sprintf(", GPU %d with %s", c.Device, strings.Join(c.Visible, " "))
		}
		return text
	case PrepareMaster:
		return fmt.Sprintf("prepare master (%s)", a.Store)
	case ReleaseMaster:
		return "release master " + a.Address
	case SendJoin:
		j := a.Join
		unsynced := ""
		if j.Unsynced {
			unsynced = " unsynced"
		}
		return fmt.Sprintf("send join%s %s %s attempt %d pid %d address %s left %s planned %t notice %gms", unsynced, p.name(j.Incarnation), j.Place,
			j.Attempt, j.PID, j.Address, j.Left, j.Planned, j.NoticeMS)
	case AnswerJoin:
		x := a.Assignment
		if x.Verdict == workerprotocol.Prefetch {
			return fmt.Sprintf("answer %s: %s g%d from %v", p.name(a.Worker), x.Verdict, x.Generation, x.Peers)
		}
		if x.Rank+x.World == 0 {
			return fmt.Sprintf("answer %s: %s", p.name(a.Worker), x.Verdict)
		}
		return fmt.Sprintf("answer %s: %s g%d rank %d of %d, trace %s", p.name(a.Worker), x.Verdict, x.Generation, x.Rank, x.World, p.traceName(x.Trace))
	case RefuseJoin:
		return fmt.Sprintf("refuse join of %s: %s: %s", p.name(a.Worker), a.Code, a.Reason)
	case PushChange:
		if until := a.Change.Until; !until.IsZero() {
			return fmt.Sprintf("push %s: %s g%d: %s, gone at %s", p.name(a.Worker), a.Change.Kind, a.Change.Generation, a.Change.Reason, until.Sub(epoch))
		}
		if at := a.Change.Place; at != "" {
			return fmt.Sprintf("push %s: %s g%d, which %s: %s", p.name(a.Worker), a.Change.Kind, a.Change.Generation, at, a.Change.Reason)
		}
		return fmt.Sprintf("push %s: %s g%d rank %d: %s", p.name(a.Worker), a.Change.Kind, a.Change.Generation, a.Change.Rank, a.Change.Reason)
	case PublishFact:
		return fmt.Sprintf("tell %s, trace %s", p.fact(a.Body), p.traceName(a.Trace))
	case SendNotice:
		return fmt.Sprintf("notice %s rank %d: %s", p.name(a.Notice.Exited.Incarnation), a.Notice.Rank, a.Notice.Exited.Detail)
	case SendProgress:
		x := a.Progress
		s := fmt.Sprintf("progress %s step %d", x.Generation, x.Step)
		if x.Commit != nil {
			s += fmt.Sprintf(" commit %s/%d", x.Commit.Generation, x.Commit.Step)
		}
		if x.Ledger != nil {
			s += fmt.Sprintf(" ledger %d of %d", x.Ledger.Epochs[0].Count, x.Ledger.Samples)
		}
		if x.Slowest != nil {
			s += fmt.Sprintf(" slowest is %d", x.Slowest.Rank)
		}
		if r := x.Redundancy; r != nil {
			s += fmt.Sprintf(" %gms ago: step %d, made %gms ago, survives %d, nodes %d", r.AgeMS, r.Commit.Step, *r.CommitAgeMS, r.Losses, r.NodeLosses)
			if r.Checkpoint != nil {
				s += fmt.Sprintf(", checkpoint of step %d", r.Checkpoint.Step)
			}
		}
		return s + metricsText(x.Metrics, x.MetricSteps)
	case RecordSpan:
		return p.span(a.Span)
	}
	return fmt.Sprintf("%T", a)
}

func (p *player) span(a events.Span) string {
	s := fmt.Sprintf("span %s %q %s", a.Service, a.Name, a.End.Sub(a.Start))
	if a.Parent != "" {
		s += " in " + p.traceName(a.Parent)
	}
	if a.Self != "" {
		s += " is " + p.traceName(a.Self)
	}
	for _, l := range a.Links {
		s += ", see " + p.traceName(l)
	}
	if a.Error != "" {
		s += ": " + a.Error
	}
	return s
}

// metricsText formats values, with the steps of those that are from another step.
func metricsText(values map[string]float64, steps map[string]uint64) (s string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		s += fmt.Sprintf(" %s=%g", name, values[name])
		if at, ok := steps[name]; ok {
			s += fmt.Sprintf("@%d", at)
		}
	}
	return s
}

func (p *player) fact(b events.Body) string {
	switch b := b.(type) {
	case events.WorkerStarted:
		return fmt.Sprintf("started %s %s", p.name(b.Incarnation), b.Generation)
	case events.WorkerReady:
		s := fmt.Sprintf("ready %s %s rank %d survivor %t, abort %gms rejoin %gms step %gms", p.name(b.Incarnation), b.Generation, b.Rank,
			b.Survivor, b.AbortMS, b.RejoinMS, b.StepMS)
		if c := b.Checkpoint; c != nil {
			s += fmt.Sprintf(", from checkpoint %s step %d", c.Generation, c.Step)
		}
		return s
	case events.WorkerHashed:
		again := "unknown"
		if n := b.Dealt[0].Again; n != nil {
			again = fmt.Sprint(*n)
		}
		return fmt.Sprintf("hashed %s %s step %d %s %v, ranks %v, again %s", p.name(b.Incarnation), b.Generation, b.Step, b.Hash, b.Tensors, b.Dealt[0].Ranks, again)
	case events.WorkerDone:
		return fmt.Sprintf("done %s %s step %d", p.name(b.Incarnation), b.Generation, b.Step)
	case events.WorkerExited:
		s := fmt.Sprintf("exited %s %s: %s", p.name(b.Incarnation), b.Generation, b.Detail)
		if b.Commit.Step > 0 {
			s += fmt.Sprintf(", could return to %s step %d", b.Commit.Generation, b.Commit.Step)
		}
		if b.Done {
			s += ", done"
		}
		if b.Asked {
			s += ", asked"
		}
		return s + metricsText(b.Metrics, b.MetricSteps)
	}
	return fmt.Sprintf("%T", b)
}
