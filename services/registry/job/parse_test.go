package job_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// args are the arguments of a script line: key=value, flags, places and worker names.
type args struct {
	t     *testing.T
	named map[string]string
	rest  []string
}

func (a args) num(key string) float64 {
	v, ok := a.named[key]
	if !ok {
		return 0
	}
	f, err := strconv.ParseFloat(v, 64)
	if err != nil {
		a.t.Fatalf("%s=%s is no number", key, v)
	}
	return f
}

func (a args) text(key string) string { return strings.ReplaceAll(a.named[key], "_", " ") }

func (a args) has(flag string) bool {
	for _, r := range a.rest {
		if r == flag {
			return true
		}
	}
	return false
}

func (a args) workers() spec.Workers {
	low, high, _ := strings.Cut(a.named["workers"], ":")
	lo, _ := strconv.Atoi(low)
	hi, _ := strconv.Atoi(high)
	return spec.Workers{Min: lo, Max: hi}
}

func place(t testing.TB, s string) ident.Place {
	node, slot, _ := strings.Cut(s, "/")
	n, err := strconv.Atoi(slot)
	if err != nil {
		t.Fatalf("%q is no place", s)
	}
	return ident.Place{Node: ident.NodeID(node), Slot: ident.Slot(n)}
}

// workerRef parses a/0=w1#2: a place, its worker and the attempt.
func workerRef(t testing.TB, s string) tables.WorkerRef {
	p, name, _ := strings.Cut(s, "=")
	name, attempt, found := strings.Cut(name, "#")
	n := 1
	if found {
		n, _ = strconv.Atoi(attempt)
	}
	return tables.WorkerRef{Job: demo, Place: place(t, p), Incarnation: ident.Incarnation(name), Attempt: n, Agent: "A1", PID: 100}
}

func (a args) ref() tables.WorkerRef {
	for _, r := range a.rest {
		if strings.Contains(r, "/") {
			ref := workerRef(a.t, r)
			ref.Generation = ident.Generation(a.num("g"))
			if agent := a.named["agent"]; agent != "" {
				ref.Agent = ident.Incarnation(agent)
			}
			return ref
		}
	}
	a.t.Fatalf("no worker in %v", a.rest)
	return tables.WorkerRef{}
}

func (a args) cause() events.Cause {
	kind := a.named["cause"]
	if kind == "" {
		kind = "start"
	}
	c := events.Cause{Kind: events.CauseKind(kind), Rank: -1}
	if at := a.named["at"]; at != "" {
		p := place(a.t, at)
		c.Place, c.Node, c.Rank, c.Detail = &p, p.Node, ident.Rank(a.num("rank")), a.text("how")
	}
	return c
}

func split(t *testing.T, words []string) args {
	a := args{t: t, named: map[string]string{}}
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok && !strings.Contains(k, "/") {
			a.named[k] = v
		} else {
			a.rest = append(a.rest, w)
		}
	}
	return a
}

// parse returns the body and the number of the fact for a line of a script.
func parse(t *testing.T, words []string) (events.Body, uint64) {
	a := split(t, words[1:])
	number := uint64(a.num("n"))
	switch words[0] {
	case "submit":
		return events.JobSubmit{Spec: a.spec()}, 0
	case "scale":
		return events.JobScale{Job: demo, Workers: a.workers()}, 0
	case "stop":
		return events.JobStop{Job: demo, Reason: a.text("reason"), Now: a.has("now")}, 0
	case "place":
		set := events.PlacementSet{Job: demo}
		for _, p := range a.rest {
			set.Places = append(set.Places, place(t, p))
		}
		return set, number
	case "gathered":
		g := events.RoundParticipantsSet{Job: demo, Reason: a.text("reason"), Closed: a.has("closed"), Abandoned: a.has("abandoned")}
		for _, p := range a.rest {
			if strings.Contains(p, "/") {
				g.Places = append(g.Places, place(t, p))
				g.Nodes = append(g.Nodes, place(t, p).Node)
			}
		}
		return g, number
	case "noroom":
		return events.PlacementWaiting{Job: demo, Reason: a.text("reason")}, number
	case "open":
		g, _ := strconv.Atoi(a.rest[0])
		return events.RoundOpened{Job: demo, Proposed: ident.Generation(g), Cause: a.cause()}, number
	case "seal":
		return a.seal(), number
	case "missed":
		g, _ := strconv.Atoi(a.rest[0])
		return events.RoundMissed{Job: demo, Proposed: ident.Generation(g), Missing: a.seal().Members}, number
	case "progress":
		p := events.Progress{Job: demo, Generation: ident.Generation(a.num("g")), Step: uint64(a.num("step"))}
		if c := a.commit(p.Generation); c.Step > 0 {
			p.Commit = &c
		}
		if a.named["slowest"] != "" {
			p.Slowest = &events.Straggler{Rank: ident.Rank(a.num("slowest")), Share: 0.5}
		}
		if a.named["survives"] != "" {
			p.Known = &events.Redundancy{
				Generation: p.Generation, Commit: tables.Commit{Generation: p.Generation, Step: uint64(a.num("whole"))}, Losses: int(a.num("survives")),
			}
		}
		return p, 0
	case "standstill":
		return events.StepsStalled{Job: demo, Generation: ident.Generation(a.num("g")), Step: uint64(a.num("step")), For: a.duration("for")}, 0
	case "start":
		return events.WorkerStarted{WorkerRef: a.ref()}, 0
	case "ready":
		return events.WorkerReady{
			WorkerRef: a.ref(), Rank: ident.Rank(a.num("rank")), Step: uint64(a.num("step")), Lost: uint64(a.num("lost")),
			Survivor: a.has("survivor"), AbortMS: a.num("abort"), RejoinMS: a.num("rejoin"), SyncMS: a.num("sync"), StepMS: a.num("first"),
		}, 0
	case "hash":
		return events.WorkerHashed{WorkerRef: a.ref(), StateHash: tables.StateHash{Step: uint64(a.num("step")), Hash: a.text("of")}}, 0
	case "done":
		return events.WorkerDone{WorkerRef: a.ref(), Step: uint64(a.num("step"))}, 0
	case "exit":
		e := events.WorkerExited{WorkerRef: a.ref(), ExitCode: int(a.num("code")), Done: a.has("done"), Asked: a.has("asked"), Step: uint64(a.num("step")), Detail: a.text("how"), Signal: a.named["signal"], OOM: a.has("oom"), Departing: a.has("departing"), Orphaned: a.has("orphaned"), NodeFault: a.has("node")}
		e.Commit = a.commit(e.Generation)
		if message := a.text("says"); message != "" {
			e.Lines = strings.Split(message, "|")
		}
		if e.Detail == "" {
			e.Detail = "exit code " + strconv.Itoa(e.ExitCode)
		}
		if typ, message, found := strings.Cut(a.text("exception"), ": "); found {
			e.Exception = &tables.Exception{Type: typ, Message: message, Peer: a.has("peer"), BeforeMS: a.num("before")}
			e.Detail = e.Exception.String() + ", " + e.Detail
		}
		e.AgeMS = a.num("age")
		e.LivedMS = events.Milliseconds(a.duration("lived").D())
		return e, 0
	case "joined", "lost", "left":
		f := events.NodeFact{Node: ident.NodeID(a.rest[0]), Incarnation: "A1", Reason: a.text("reason"), Departing: a.has("departing")}
		if agent := a.named["agent"]; agent != "" {
			f.Incarnation = ident.Incarnation(agent)
		}
		if parted := a.named["parted"]; parted != "" {
			for p := range strings.SplitSeq(parted, ",") {
				f.LeftIncarnations = append(f.LeftIncarnations, ident.Incarnation(p))
			}
		}
		switch words[0] {
		case "joined":
			return events.NodeJoined{NodeFact: f}, number
		case "lost":
			return events.NodeLost{NodeFact: f, SilentMS: events.Milliseconds(a.duration("silent").D())}, number
		}
		return events.NodeLeft{NodeFact: f}, number
	}
	t.Fatalf("no such line: %v", words)
	return nil, 0
}

// commit returns a commit of generation g; in=N names another one.
func (a args) commit(g ident.Generation) tables.Commit {
	if a.named["commit"] == "" {
		return tables.Commit{}
	}
	if in := a.num("in"); in > 0 {
		g = ident.Generation(in)
	}
	return tables.Commit{Generation: g, Step: uint64(a.num("commit"))}
}

func (a args) duration(key string) spec.Duration {
	text := a.named[key]
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		a.t.Fatal(err)
	}
	return spec.Duration(d)
}

func (a args) seal() events.RoundSealed {
	g, _ := strconv.Atoi(a.rest[0])
	b := events.RoundSealed{
		Job: demo, Generation: ident.Generation(g), Cause: a.cause(), From: ident.Generation(a.num("from")),
		NoticeMS: a.num("notice"), JudgeMS: a.num("judge"), BackOffMS: a.num("backoff"), NoProgress: int(a.num("noprogress")),
	}
	for i, r := range a.rest[1:] {
		ref := workerRef(a.t, r)
		b.Members = append(b.Members, tables.Member{
			Place: ref.Place, Incarnation: ref.Incarnation, Agent: ident.Incarnation(a.named["agent"]), Attempt: ref.Attempt, Rank: ident.Rank(i),
			Commit: a.commit(b.Generation - 1),
		})
	}
	if p := a.named["excluded"]; p != "" {
		b.Excluded = ident.Places{workerRef(a.t, p).Place}
	}
	return b
}

func (a args) spec() spec.Job {
	s := spec.Job{Name: "demo", Command: []string{"python", "train.py"}, Workers: a.workers(), Recovery: spec.RecoveryInProcess}
	if r := a.named["recovery"]; r != "" {
		s.Recovery = spec.Recovery(r)
	}
	if _, ok := a.named["failures"]; ok {
		n := int(a.num("failures"))
		s.Failures.Max = &n
	}
	if _, ok := a.named["resets"]; ok {
		n := int(a.num("resets"))
		s.Elastic.ResetLimit = &n
	}
	s.Failures.SameStep, s.Elastic.MultipleOf = int(a.num("samestep")), int(a.num("multiple"))
	s.Failures.Per, s.Elastic.Timeout, s.Health.Hang = a.duration("per"), a.duration("timeout"), a.duration("hang")
	s.Stop.Grace = a.duration("grace")
	if nodes := a.named["nodes"]; nodes != "" {
		low, high, _ := strings.Cut(nodes, ":")
		lo, _ := strconv.Atoi(low)
		hi, _ := strconv.Atoi(high)
		s.Rendezvous, s.Workers = &spec.Rendezvous{Nodes: spec.NodeRange{Min: lo, Max: hi}}, spec.Workers{}
	}
	if a.has("nocommand") {
		s.Command = nil
	}
	return s
}
