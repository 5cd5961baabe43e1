package worker

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/agent/workerenv"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// world generates random inputs from processes and launches and checks the invariants for any
// order.
type world struct {
	s        State
	now      time.Time
	started  map[ident.Incarnation]StartProcess
	ended    map[ident.Incarnation]bool
	attempts map[ident.Place]int // highest one started, in-process
	holder   map[ident.Place]ident.Incarnation
	exits    map[ident.Incarnation]int
	doomed   map[ident.Incarnation]bool // certain to end
	spans    map[string]bool            // recorded, of those with fixed ids
	handed   map[string]bool            // fixed ids that programs were given
	revision uint64

	processes spec.Processes // of the job
	first     bool           // the newest launch is of a job that has made no step, and has no generation
	asked     KeepSpares     // the newest request for spares
	ready     int            // by its newest answer
}

func (w *world) step(t *rapid.T, in Input) {
	before := w.s.Revisions()["j-0000"]
	var acts []Action
	switch in := in.(type) {
	case Launched:
		if in.Launch.Revision > before {
			w.first = in.Launch.Phase == events.PhasePrepare && in.Launch.From == 0
		}
	case SparesKept:
		if in.Request == w.asked.Request {
			w.ready = in.Ready
		}
	}
	w.s, acts = Step(w.s, in, w.now)
	if w.s.Revisions()["j-0000"] < before {
		t.Fatalf("revision fell from %d", before)
	}
	noticed := map[ident.Incarnation]bool{}
	for _, a := range acts {
		switch a := a.(type) {
		case StartProcess:
			if _, twice := w.started[a.Worker]; twice {
				t.Fatalf("%s was started twice", a.Worker)
			}
			if h := w.holder[a.Place]; h != "" && !w.ended[h] {
				t.Fatalf("%s has two processes at once", a.Place)
			}
			if a.Generation == 0 && a.Attempt <= w.attempts[a.Place] {
				t.Fatalf("attempt %d of %s was started again", a.Attempt, a.Place)
			}
			if a.Span.Self == "" || a.Span.Self != a.Env[workerprotocol.EnvTraceparent] {
				t.Fatalf("%s has the span %q and is given %q", a.Worker, a.Span.Self, a.Env[workerprotocol.EnvTraceparent])
			}
			if w.processes.AwaitSpares && w.first && len(w.started) == 0 && (w.asked.Count == 0 || w.ready < w.asked.Count) {
				t.Fatalf("%s was started with %d of %d spares", a.Worker, w.ready, w.asked.Count)
			}
			w.handed[a.Span.Self] = true
			w.started[a.Worker], w.holder[a.Place], w.attempts[a.Place] = a, a.Worker, max(w.attempts[a.Place], a.Attempt)
		case KeepSpares:
			if a.Count > 0 && a.Request <= w.asked.Request || w.processes.Spares == 0 {
				t.Fatalf("request %d for spares comes after %d, of a job that keeps %d", a.Request, w.asked.Request, w.processes.Spares)
			}
			for _, c := range a.Contexts {
				if seen := strings.Split(strings.Join(c.Visible, ""), ","); c.Device < 0 || c.Device >= len(seen) {
					t.Fatalf("a spare on GPU %d of %v", c.Device, seen)
				}
			}
			if w.ready = 0; a.Count == 0 {
				a.Request = w.asked.Request
			}
			w.asked = a
		case SignalProcess:
			w.known(t, a.Worker)
		case KillProcess:
			w.known(t, a.Worker)
		case SendNotice:
			noticed[a.Notice.Exited.Incarnation] = true
		case PublishFact:
			x, ok := a.Body.(events.WorkerExited)
			if !ok {
				continue
			}
			if _, ran := w.started[x.Incarnation]; !ran && w.processes.AwaitSpares && x.ExitCode == exitNotReady {
				w.ended[x.Incarnation] = true // for lack of a spare
			} else if self := w.started[x.Incarnation].Span.Self; !w.spans[self] {
				t.Fatalf("%s has ended, and its span was not recorded", x.Incarnation)
			}
			if w.exits[x.Incarnation]++; w.exits[x.Incarnation] > 1 {
				t.Fatalf("the exit of %s was published twice", x.Incarnation)
			}
			if x.Signal == "SIGSEGV" && !x.Asked && !noticed[x.Incarnation] {
				t.Fatalf("the failure of %s was published before its notice", x.Incarnation)
			}
		case RecordSpan:
			switch {
			case a.Span.Name == spanLaunch && a.Span.Parent == tracing.IncidentTrace("j-0000", generation(a.Span)):
				t.Fatalf("the launch of %s is in the trace of the incident that ends it", generation(a.Span))
			case a.Span.End.Before(a.Span.Start):
				t.Fatalf("span %q ends before it begins", a.Span.Name)
			case a.Span.Self != "" && (w.spans[a.Span.Self] || !w.handed[a.Span.Self]):
				t.Fatalf("span %q was recorded before, or no program was given it", a.Span.Name)
			}
			if a.Span.Self != "" {
				w.spans[a.Span.Self] = true
			}
		case AnswerJoin:
			if a.Assignment.Verdict == workerprotocol.Assigned {
				if w.spans[a.Assignment.Trace] || !tracing.Valid(a.Assignment.Trace) {
					t.Fatalf("assigned to the span %q, which has ended or is none", a.Assignment.Trace)
				}
				w.handed[a.Assignment.Trace] = true
			}
			if a.Assignment.Verdict == workerprotocol.Assigned && a.Assignment.Rank < 0 {
				t.Fatal("assigned without a rank")
			}
		}
	}
}

func (w *world) known(t *rapid.T, id ident.Incarnation) {
	if _, ok := w.started[id]; !ok || w.ended[id] {
		t.Fatalf("%s is signalled but does not run", id)
	}
}

// some picks a worker: a live one, a dead one or an unknown one.
func (w *world) some(t *rapid.T) ident.Incarnation {
	ids := []ident.Incarnation{"01NOBODY"}
	for _, x := range w.s.Workers() {
		ids = append(ids, x.Incarnation)
	}
	return rapid.SampledFrom(ids).Draw(t, "worker")
}

func (w *world) launch(t *rapid.T, recovery spec.Recovery) events.Launch {
	if rapid.Bool().Draw(t, "newer") {
		w.revision++
	}
	l := events.Launch{
		Job: "j-0000", Node: "node-a", Revision: w.revision, World: 3, Master: "h:1",
		Phase:      rapid.SampledFrom([]events.Phase{events.PhasePrepare, events.PhaseRun, events.PhaseRun, events.PhaseStop}).Draw(t, "phase"),
		Generation: ident.Generation(rapid.IntRange(1, 4).Draw(t, "generation")), Planned: rapid.Bool().Draw(t, "planned"),
		Spec: spec.Job{Command: []string{"x"}, Recovery: recovery, Processes: w.processes},
	}
	most := l.Generation
	if l.Phase == events.PhasePrepare {
		most-- // the generation is only proposed, so it has made no step
	}
	if good := rapid.IntRange(0, int(most)).Draw(t, "good"); good > 0 {
		l.From, l.Trace = ident.Generation(good), tracing.IncidentTrace(l.Job, ident.Generation(good))
	}
	incarnations := map[ident.Slot]ident.Incarnation{}
	for _, x := range w.s.Workers() {
		incarnations[x.Place.Slot] = x.Incarnation
	}
	for slot := range rapid.IntRange(0, 3).Draw(t, "members") {
		m := events.LaunchMember{}
		m.Place = place(slot)
		m.Attempt = rapid.IntRange(1, 3).Draw(t, "attempt")
		m.Rank = ident.Rank(rapid.IntRange(-1, 2).Draw(t, "rank"))
		m.Incarnation = rapid.SampledFrom([]ident.Incarnation{"", incarnations[ident.Slot(slot)], "01FOREIGN"}).Draw(t, "incarnation")
		l.Members = append(l.Members, m)
	}
	return l
}

// generation returns the generation that a span names.
func generation(s events.Span) ident.Generation {
	g, _ := strconv.Atoi(strings.TrimPrefix(s.Attributes["regroup.generation"], "g"))
	return ident.Generation(g)
}

func TestAnyHistory(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &world{
			s: New(Config{Node: "node-a", Agent: "01AGENT", Host: workerenv.Host{GPUs: []string{"GPU-a", "GPU-b", "GPU-c"}}}), now: epoch, started: map[ident.Incarnation]StartProcess{},
			ended: map[ident.Incarnation]bool{}, attempts: map[ident.Place]int{}, holder: map[ident.Place]ident.Incarnation{},
			exits: map[ident.Incarnation]int{}, doomed: map[ident.Incarnation]bool{}, spans: map[string]bool{}, handed: map[string]bool{},
		}
		if n := rapid.IntRange(0, 2).Draw(t, "spares"); n > 0 {
			w.processes = spec.Processes{Spares: n, SpareContexts: rapid.Bool().Draw(t, "contexts"), AwaitSpares: rapid.Bool().Draw(t, "await")}
		}
		recovery := rapid.SampledFrom([]spec.Recovery{spec.RecoveryRestart, spec.RecoveryInProcess}).Draw(t, "recovery")
		exit := func(id ident.Incarnation) {
			_, ok := w.started[id]
			if ok {
				w.ended[id] = true
			}
			if ok || id == "01NOBODY" {
				w.step(t, ProcessExited{Worker: id, ExitCode: -1, Signal: "SIGSEGV", Number: 11})
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond)
			id := w.some(t)
			switch rapid.IntRange(0, 11).Draw(t, "what") {
			case 0, 1:
				w.step(t, Launched{w.launch(t, recovery)})
			case 2, 3:
				w.step(t, ProcessStarted{Worker: id, PID: 1})
			case 4:
				exit(id)
			case 5:
				w.step(t, WorkerJoined{id, workerprotocol.JoinRequest{Address: "h:2", Left: uint64(rapid.IntRange(0, 4).Draw(t, "left"))}})
			case 6:
				w.step(t, JoinAnswered{Worker: id, Waiting: events.MemberWaiting{
					Over: rapid.Bool().Draw(t, "over"), Removed: rapid.Bool().Draw(t, "removed"),
				}, Refused: rapid.SampledFrom([]errcode.Code{"", errcode.Unavailable, errcode.Fenced, errcode.Invalid}).Draw(t, "refused")})
			case 7:
				w.step(t, MasterPrepared{Job: "j-0000", Address: "h:3"})
			case 8:
				w.step(t, WorkerReported{id, workerprotocol.Report{Generation: uint64(rapid.IntRange(0, 4).Draw(t, "of")), First: &workerprotocol.FirstStep{}}})
			case 9:
				w.step(t, Tick{})
			case 10:
				if _, ok := w.started[id]; ok && !w.ended[id] {
					w.doomed[id] = true
				}
				w.step(t, ProcessDying{Worker: id, Signal: "SIGKILL", Number: 9})
			case 11:
				w.step(t, SparesKept{
					Job: "j-0000", Request: max(0, w.asked.Request-rapid.IntRange(0, 1).Draw(t, "earlier")), Ready: rapid.IntRange(0, w.asked.Count).Draw(t, "ready"),
					Problem: rapid.SampledFrom([]string{"", "", "no module"}).Draw(t, "problem"),
				})
			}
		}
		// At the end everything can be stopped, and a tick never asks for another one at the same
		// time.
		w.step(t, Shutdown{})
		for range 1000 {
			for _, x := range w.s.Workers() {
				if p := w.s.jobs["j-0000"].incarnations[x.Place.Slot].phase; p == starting {
					w.step(t, ProcessStarted{Worker: x.Incarnation, PID: 2})
				}
			}
			for _, x := range w.s.Workers() {
				if l := w.s.jobs["j-0000"].incarnations[x.Place.Slot]; (l.killed || w.doomed[x.Incarnation]) && l.alive() {
					exit(x.Incarnation)
				}
			}
			if w.s.Idle() {
				return
			}
			d := Deadline(w.s)
			if d.IsZero() {
				t.Fatal("processes are left and no deadline")
			}
			w.now = later(w.now, d)
			w.step(t, Tick{})
			if again := Deadline(w.s); !again.IsZero() && !again.After(w.now) {
				t.Fatalf("still due after a tick: %s", again.Sub(w.now))
			}
		}
		t.Fatal("it does not come to an end")
	})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
