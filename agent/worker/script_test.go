package worker

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/agent/workerenv"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/internal/golden"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A script has commands at the left margin, each followed by the resulting actions, indented.
func TestScripts(t *testing.T) { golden.Scripts(t, play) }

type player struct {
	t     *testing.T
	s     State
	now   time.Time
	names map[ident.Incarnation]string
	out   strings.Builder
	envs  map[string]StartProcess
}

func play(t *testing.T, script string) string {
	p := &player{
		t: t, now: epoch, names: map[ident.Incarnation]string{}, envs: map[string]StartProcess{},
		s: New(Config{Node: "node-a", Agent: "01AGENT", Host: workerenv.Host{Advertise: "10.0.0.1", Socket: "/run/a.sock", ErrorDir: "/run/errors"}}),
	}
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue
		}
		fmt.Fprintln(&p.out, line)
		if line != "" && !strings.HasPrefix(line, "#") {
			p.command(strings.Fields(line))
		}
	}
	return p.out.String()
}

type args map[string]string

func (a args) num(k string) int  { n, _ := strconv.Atoi(a[k]); return n }
func (a args) has(k string) bool { _, ok := a[k]; return ok }

func (p *player) command(f []string) {
	a := args{}
	for _, s := range f[1:] {
		k, v, _ := strings.Cut(s, "=")
		a[k] = v
	}
	id := ident.Incarnation("")
	if len(f) > 1 {
		for k, n := range p.names {
			if n == f[1] {
				id = k
			}
		}
	}
	switch f[0] {
	case "gpus": // of the slots
		p.s.cfg.GPUs = strings.Split(f[1], ",")
	case "launch":
		p.step(Launched{p.launch(a, f)})
	case "spares": // an answer to the newest request; request=N: to another
		request := p.s.jobs["mnist-7f3a"].spares.asked.Request
		if a.has("request") {
			request = a.num("request")
		}
		p.step(SparesKept{Job: "mnist-7f3a", Request: request, Ready: a.num("ready"), Problem: strings.ReplaceAll(a["problem"], "_", " ")})
	case "started":
		p.step(ProcessStarted{Worker: id, PID: a.num("pid")})
	case "failed":
		p.step(ProcessFailedToStart{Worker: id, ExitCode: a.num("code"), Detail: strings.ReplaceAll(a["detail"], "_", " "), NodeFault: a.has("node")})
	case "exit":
		x := ProcessExited{Worker: id, ExitCode: a.num("code"), Signal: a["signal"], OOM: a.has("oom"), Age: 2 * time.Millisecond}
		if x.Signal != "" {
			x.ExitCode, x.Number = -1, map[string]int{"SIGKILL": 9, "SIGTERM": 15, "SIGSEGV": 11}[x.Signal]
		}
		if typ, says, found := strings.Cut(strings.ReplaceAll(a["exception"], "_", " "), ": "); found {
			x.Exception = &tables.Exception{Type: typ, Message: says, File: "train.py", Line: 7, Function: "main", BeforeMS: float64(a.num("before"))}
		}
		p.step(x)
	case "dying":
		x := ProcessDying{Worker: id, ExitCode: a.num("code"), Signal: a["signal"]}
		x.Number = map[string]int{"": 0, "SIGKILL": 9, "SIGTERM": 15, "SIGSEGV": 11}[x.Signal]
		p.step(x)
	case "orphan":
		o := Orphaned{Job: "mnist-7f3a", Place: place(a.num("slot")), Attempt: a.num("attempt"), Worker: "01OLD"}
		if a.has("ran") {
			o.Span = events.Span{Service: "worker", Name: "worker process", Parent: tracing.JobTrace(o.Job), Start: p.now.Add(-time.Duration(a.num("ran")) * time.Second)}
			o.Span.Self = tracing.Child(o.Span.Parent, "process", string(o.Worker))
		}
		p.step(o)
	case "master":
		p.step(MasterPrepared{Job: ident.JobID(cmp.Or(a["job"], "mnist-7f3a")), Address: a["address"]})
	case "join":
		p.step(WorkerJoined{id, workerprotocol.JoinRequest{
			Address: cmp.Or(a["address"], "10.0.0.1:5000"), Left: uint64(a.num("left")), Planned: a.has("planned"),
			NoticeMS: float64(a.num("notice")), Accused: ranks(a["accused"]), Unsynced: a.has("unsynced"), Holders: uint64(a.num("holders")),
		}})
	case "answered":
		p.step(JoinAnswered{
			Worker: id, Refused: errcode.Code(a["refused"]), Reason: "because",
			Waiting: events.MemberWaiting{Over: a.has("over"), Removed: a.has("removed")},
		})
	case "report":
		r := workerprotocol.Report{Generation: uint64(a.num("gen")), Step: uint64(a.num("step"))}
		if a.has("at") {
			r.MetricsStep = new(uint64(a.num("at")))
		}
		for _, name := range []string{"loss", "accuracy"} {
			if v, err := strconv.ParseFloat(a[name], 64); err == nil {
				if r.Metrics == nil {
					r.Metrics = map[string]float64{}
				}
				r.Metrics[name] = v
			}
		}
		if a.has("slowest") {
			r.Slowest = &workerprotocol.Straggler{Rank: a.num("slowest"), Share: 0.5}
		}
		if a.has("first") {
			r.First = &workerprotocol.FirstStep{Survivor: !a.has("newcomer"), AbortMS: 5, RejoinMS: 20, SyncMS: 3, StepMS: 2}
			if a.has("checkpoint") {
				r.First.Checkpoint = &workerprotocol.Commit{Generation: 7, Step: uint64(a.num("checkpoint"))}
			}
		}
		p.step(WorkerReported{id, r})
	case "commit":
		r := workerprotocol.CommitReport{
			Commit: workerprotocol.Commit{Generation: uint64(a.num("gen")), Step: uint64(a.num("step"))},
			Ledger: workerprotocol.Ledger{Samples: 100, Epochs: []workerprotocol.LedgerEpoch{{Count: uint64(a.num("count"))}}},
		}
		if a.has("survives") { // of step whole, which was made two seconds ago
			r.Redundancy = &workerprotocol.Redundancy{
				Generation: uint64(a.num("in")), Commit: workerprotocol.Commit{Generation: 1, Step: uint64(a.num("whole"))},
				Made: p.now.Add(-2 * time.Second), Losses: a.num("survives"), NodeLosses: a.num("nodes"),
			}
			if a.has("checkpoint") {
				r.Redundancy.Checkpoint = &workerprotocol.Commit{Generation: 1, Step: uint64(a.num("checkpoint"))}
			}
		}
		p.step(WorkerCommitted{id, r})
	case "done":
		p.step(WorkerFinished{id, workerprotocol.DoneReport{Generation: uint64(a.num("gen")), Step: uint64(a.num("step"))}})
	case "hash": // hash w1 gen=2 step=9
		again := uint64(2)
		r := workerprotocol.HashReport{
			Generation: uint64(a.num("gen")), Step: uint64(a.num("step")), Hash: "0a1b", Tensors: map[string]string{"fc.weight": "c3"},
			Dealt: []workerprotocol.DealtSteps{{First: 1, Last: 9, Generation: 1, Ranks: []int{0, 0, 1}, Again: &again}},
		}
		if err := r.Check(); err != nil {
			p.t.Fatal(f, err)
		}
		p.step(WorkerHashed{id, r})
	case "span": // span w1 gen=2 ends age=600 ms=550
		name := workerprotocol.SpanGroupConnects
		if a.has("ends") {
			name = workerprotocol.SpanGroupEnds
		}
		r := workerprotocol.SpanReport{Generation: uint64(a.num("gen")), Name: name, AgeMS: float64(a.num("age")), MS: float64(a.num("ms"))}
		if err := r.Check(); err != nil {
			p.t.Fatal(f, err)
		}
		p.step(WorkerSpanned{id, r})
	case "notice":
		n := events.Notice{Rank: ident.Rank(a.num("rank"))}
		n.Exited.Job, n.Exited.Generation, n.Exited.Detail = "mnist-7f3a", ident.Generation(a.num("gen")), "killed by signal 9 (SIGKILL)"
		p.step(NoticeHeard{n})
	case "abandon":
		p.step(AbandonHeard{events.Abandon{Job: "mnist-7f3a", Generation: ident.Generation(a.num("gen")), Reason: "node-b is lost"}})
	case "lease": // lease restart=3s in-place=1m
		until := func(k string) time.Time {
			d, err := time.ParseDuration(a[k])
			if err != nil {
				p.t.Fatal(f, err)
			}
			return p.now.Add(d)
		}
		p.step(LeaseRenewed{Restart: until("restart"), InPlace: until("in-place"), Reason: "discovery has not answered for 3s"})
	case "lease-lost":
		why := "its node was declared lost"
		if a.has("all") {
			why = "the broker refuses its credentials"
		}
		p.step(LeaseLost{All: a.has("all"), Reason: why})
	case "depart":
		p.step(Departing{events.Departure{Reason: "preempted", Until: p.now.Add(time.Duration(a.num("within")) * time.Second)}})
	case "shutdown":
		p.step(Shutdown{Now: a.has("now")})
	case "wait":
		p.wait(f[1])
	case "env":
		p.env(f[1])
	default:
		p.t.Fatalf("unknown command %q", f[0])
	}
}

// wait advances the time, with a tick at every deadline.
func (p *player) wait(span string) {
	d, err := time.ParseDuration(span)
	if err != nil {
		p.t.Fatal(err)
	}
	for end := p.now.Add(d); ; {
		next := Deadline(p.s)
		if next.IsZero() || next.After(end) {
			p.now = end
			return
		}
		if next.After(p.now) {
			p.now = next
		}
		p.step(Tick{})
		if again := Deadline(p.s); !again.IsZero() && !again.After(p.now) {
			p.t.Fatalf("a tick at %s leaves a deadline that is due at %s", p.now.Sub(epoch), again.Sub(epoch))
		}
	}
}

func (p *player) env(name string) {
	a := p.envs[name]
	for _, k := range slices.Sorted(keys(a.Env)) {
		v := p.named(a.Env[k])
		if k == workerprotocol.EnvTraceparent {
			v = p.traceName(v)
		}
		fmt.Fprintf(&p.out, "  %s=%s\n", k, v)
	}
	for _, k := range slices.Sorted(keys(a.Defaults)) {
		fmt.Fprintf(&p.out, "  default %s=%s\n", k, a.Defaults[k])
	}
}

// ranks parses 1,2.
func ranks(list string) (all []int) {
	for s := range strings.SplitSeq(list, ",") {
		if r, err := strconv.Atoi(s); err == nil {
			all = append(all, r)
		}
	}
	return all
}

func keys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func place(slot int) ident.Place { return ident.Place{Node: "node-a", Slot: ident.Slot(slot)} }

// launch parses rev= phase= gen= recovery= world= members=slot[-][:attempt][=rank[@name]],...
// where - is for one that leaves.
func (p *player) launch(a args, f []string) events.Launch {
	l := events.Launch{
		Job: ident.JobID(cmp.Or(a["job"], "mnist-7f3a")), Node: "node-a", Revision: uint64(a.num("rev")), Phase: events.Phase(a["phase"]),
		Generation: ident.Generation(a.num("gen")), World: a.num("world"), Master: a["master"], Planned: a.has("planned"),
		Now: a.has("now"), Token: "tok",
		Spec: spec.Job{
			Name: "mnist", Command: []string{"python", "train.py", "--rank=${local_rank}"}, Recovery: spec.RecoveryInProcess,
			Env: map[string]string{"LR": "0.1"}, Stop: spec.Stop{Grace: spec.Duration(5 * time.Second)},
		},
	}
	if a.has("spares") {
		l.Spec.Processes = spec.Processes{
			Spares: a.num("spares"), Preload: []string{"torchvision"}, SpareContexts: a.has("contexts"), AwaitSpares: a.has("await"), VirtualLocalRank: a.has("virtual"),
		}
	}
	if a.has("restart") {
		l.Spec.Recovery = spec.RecoveryRestart
	}
	if g := a.num("from"); g > 0 {
		at := place(9)
		l.From, l.Trace = ident.Generation(g), tracing.IncidentTrace(l.Job, ident.Generation(g))
		l.Cause = events.Cause{Kind: events.CauseKind(cmp.Or(a["cause"], "worker-failed")), Place: &at, Rank: ident.Rank(a.num("lost"))}
	}
	for _, s := range f {
		list, ok := strings.CutPrefix(s, "members=")
		if !ok || list == "" {
			continue
		}
		for n, m := range strings.Split(list, ",") {
			left, who, _ := strings.Cut(m, "@")
			left, rank, hasRank := strings.Cut(left, "=")
			slot, attempt, _ := strings.Cut(left, ":")
			slot, leaves := strings.CutSuffix(slot, "-")
			lm := events.LaunchMember{Leaving: leaves}
			sn, _ := strconv.Atoi(slot)
			lm.Place, lm.Attempt, lm.Rank = place(sn), 1, ident.NoRank
			if attempt != "" {
				lm.Attempt, _ = strconv.Atoi(attempt)
			}
			if hasRank {
				n, _ := strconv.Atoi(rank)
				lm.Rank = ident.Rank(n)
			}
			if from := a["from-rank-0"]; from != "" && lm.Rank < 0 {
				lm.Peers = map[int]string{0: from}
			}
			lm.LocalRank, lm.LocalSize, lm.CrossSize = n, strings.Count(list, ",")+1, 2
			for id, name := range p.names {
				if name == who {
					lm.Incarnation = id
				}
			}
			if who == "foreign" {
				lm.Incarnation = "01FOREIGN"
			}
			l.Members = append(l.Members, lm)
		}
	}
	return l
}

func (p *player) step(in Input) {
	var acts []Action
	p.s, acts = Step(p.s, in, p.now)
	for _, a := range acts {
		fmt.Fprintf(&p.out, "  %s%s\n", p.stamp(), p.print(a))
	}
}

func (p *player) stamp() string {
	return fmt.Sprintf("%-7s ", strconv.FormatFloat(p.now.Sub(epoch).Seconds(), 'f', -1, 64)+"s")
}

// name names workers w1, w2 ... in the order in which they appear.
func (p *player) name(id ident.Incarnation) string {
	if strings.HasPrefix(string(id), "01O") {
		return "old"
	}
	if _, ok := p.names[id]; !ok {
		p.names[id] = fmt.Sprintf("w%d", len(p.names)+1)
	}
	return p.names[id]
}

func (p *player) named(s string) string {
	for id, n := range p.names {
		s = strings.ReplaceAll(s, string(id), n)
	}
	return s
}
