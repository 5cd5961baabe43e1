package job_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// history draws the facts of a job as agents and services publish them: generations with members
// that make good steps, die, finish or are lost, each seal with the newest incarnations.
func history(t *rapid.T, restart bool) []events.Body {
	nodes := []string{"a", "b", "c"}
	var facts []events.Body
	attempt := map[string]int{"a": 1, "b": 1, "c": 1}
	agent := map[string]int{"a": 1, "b": 1, "c": 1}
	gen := map[string]int{}
	ref := func(n string, g int) tables.WorkerRef {
		inc := fmt.Sprintf("%s-%02d", n, attempt[n])
		if restart {
			inc = fmt.Sprintf("%s-%02d", n, attempt[n]*10+gen[n])
		}
		return tables.WorkerRef{
			Job: demo, Place: ident.Place{Node: ident.NodeID(n)}, Incarnation: ident.Incarnation(inc),
			Attempt: attempt[n], Agent: ident.Incarnation(fmt.Sprintf("%s-agent-%d", n, agent[n])), Generation: ident.Generation(g),
		}
	}
	var places []ident.Place
	for _, n := range nodes {
		places = append(places, ref(n, 0).Place)
	}
	facts = append(facts, events.PlacementSet{Job: demo, Places: places})
	generations := rapid.IntRange(1, 5).Draw(t, "generations")
	cause := events.CauseStart
	for g := 1; g <= generations; g++ {
		seal := events.RoundSealed{Job: demo, Generation: ident.Generation(g), Cause: events.Cause{Kind: cause, Rank: -1}, JudgeMS: 5}
		facts = append(facts, events.RoundOpened{Job: demo, Proposed: ident.Generation(g), Cause: seal.Cause})
		for rank, n := range nodes {
			gen[n] = g
			r := ref(n, g)
			seal.Members = append(seal.Members, tables.Member{Place: r.Place, Incarnation: r.Incarnation, Attempt: r.Attempt, Rank: ident.Rank(rank)})
			facts = append(facts, events.WorkerStarted{WorkerRef: r})
		}
		facts = append(facts, seal)
		for rank, n := range nodes {
			if rapid.Bool().Draw(t, "ready") {
				facts = append(facts, events.WorkerReady{WorkerRef: ref(n, g), Rank: ident.Rank(rank), Step: uint64(g), Survivor: g > 1})
			}
		}
		cause = events.CauseGrow
		for _, n := range nodes {
			switch rapid.SampledFrom([]string{"lives", "lives", "crash", "asked", "lost", "done", "stands"}).Draw(t, "fate") {
			case "crash":
				facts = append(facts, events.WorkerExited{WorkerRef: ref(n, g), ExitCode: 1, Detail: "exit code 1"})
				attempt[n]++
				cause = events.CauseWorkerFailed
			case "stands":
				facts = append(facts,
					events.Progress{Job: demo, Generation: ident.Generation(g), Step: uint64(g)},
					events.StepsStalled{Job: demo, Generation: ident.Generation(g), Step: uint64(g), For: spec.Duration(time.Minute)},
					events.RoundMissed{Job: demo, Proposed: ident.Generation(g + 1), Missing: seal.Members[:1]})
				cause = events.CauseHang
			case "asked":
				facts = append(facts, events.WorkerExited{WorkerRef: ref(n, g), ExitCode: -1, Asked: true})
				attempt[n]++
			case "lost":
				facts = append(facts, events.NodeLost{NodeFact: events.NodeFact{Node: ident.NodeID(n), Incarnation: ref(n, g).Agent}})
				attempt[n]++
				agent[n]++
				cause = events.CauseNodeLost
			case "done":
				if g == generations {
					facts = append(facts, events.WorkerDone{WorkerRef: ref(n, g), Step: 100}, events.WorkerExited{WorkerRef: ref(n, g), Done: true})
				}
			}
		}
	}
	if rapid.Bool().Draw(t, "stop") {
		facts = append(facts, events.JobStop{Job: demo})
	}
	return facts
}

// mangle repeats, drops and reorders facts, as the log may.
func mangle(t *rapid.T, facts []events.Body) []events.Body {
	var out []events.Body
	for _, b := range facts {
		for range rapid.SampledFrom([]int{1, 1, 1, 1, 0, 2, 3}).Draw(t, "copies") {
			out = append(out, b)
		}
	}
	for range rapid.IntRange(0, 2*len(out)).Draw(t, "swaps") {
		i := rapid.IntRange(0, max(0, len(out)-2)).Draw(t, "at")
		if i+1 < len(out) {
			out[i], out[i+1] = out[i+1], out[i]
		}
	}
	return out
}

// TestAnyHistory checks the invariants for a job's facts in any order and number.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		restart := rapid.Bool().Draw(rt, "restart")
		budget := rapid.IntRange(0, 3).Draw(rt, "budget")
		recovery := spec.RecoveryInProcess
		if restart {
			recovery = spec.RecoveryRestart
		}
		w := newWorld()
		inv := &invariants{budget: budget, verdicts: map[string]string{}, counted: map[string]bool{}, paid: map[ident.Generation]bool{}}
		inv.check(rt, w, w.step(t, events.JobSubmit{Spec: spec.Job{
			Name: "demo", Command: []string{"x"}, Recovery: recovery,
			Workers: spec.Workers{Min: 1, Max: 3}, Failures: spec.Failures{Max: &budget, SameStep: rapid.IntRange(1, 4).Draw(rt, "samestep")},
			Health: spec.Health{Hang: spec.Duration(10 * time.Second)},
		}}, 0))
		for _, b := range mangle(rt, history(rt, restart)) {
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(rt, "ms")) * time.Millisecond)
			inv.check(rt, w, w.step(t, b, 0))
			before := w.s
			inv.check(rt, w, w.step(t, b, 0))
			if stored(t, before.View.Failures) != stored(t, w.s.View.Failures) {
				rt.Fatalf("a repeat of %T was counted", b)
			}
			if rapid.IntRange(0, 9).Draw(rt, "tick") == 0 {
				w.wait(t, time.Duration(rapid.IntRange(1, 60).Draw(rt, "s"))*time.Second,
					func(d events.Decision) { inv.check(rt, w, d) })
			}
		}
		// Every job ends after a stop, even without further facts.
		inv.check(rt, w, w.step(t, events.JobStop{Job: demo}, 0))
		w.wait(t, time.Hour, func(d events.Decision) { inv.check(rt, w, d) })
		if !w.s.View.State.Terminal() {
			rt.Fatalf("a stopped job is %s after an hour", w.s.View.State)
		}
	})
}

func stored(t testing.TB, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

type invariants struct {
	budget   int
	terminal string // the view at the end
	open     bool
	count    int
	ends     int
	finish   int
	verdicts map[string]string // by place and dead worker
	counted  map[string]bool   // by place and worker
	paid     map[ident.Generation]bool
}

func (v *invariants) check(t *rapid.T, w *world, d events.Decision) {
	view := w.s.View
	lasting := view
	lasting.Workers, lasting.FirstError, lasting.Dropped = nil, nil, 0 // late facts about workers still change these
	now, _ := json.Marshal(lasting)
	if v.terminal != "" {
		for _, x := range view.Workers {
			if !x.State.Ended() {
				t.Fatalf("%s runs in a job that has ended: %s", x.Place, x.State)
			}
		}
	}
	if v.terminal != "" && (v.terminal != string(now) || len(d.Facts) > 0) {
		t.Fatalf("terminal did not stay terminal: %v\nwas %s\nis  %s", d.Facts, v.terminal, now)
	}
	for _, f := range d.Facts {
		switch b := f.Body.(type) {
		case events.IncidentOpened:
			if v.open || b.Incident != v.count+1 || b.From == 0 {
				t.Fatalf("incident %d from %s opened while another is open, out of order or at the start", b.Incident, b.From)
			}
			v.open, v.count = true, v.count+1
		case events.IncidentClosed:
			if !v.open || b.Incident != v.count || (b.To != 0 && b.To <= b.From) || b.TotalMS != b.Phases.Sum() {
				t.Fatalf("incident closed wrongly: %+v", b)
			}
			v.open = false
		case events.JobRespawned:
			key := b.Place.String() + string(b.Dead)
			if v.verdicts[key] != "" || b.Attempt < 2 {
				t.Fatalf("%s was respawned after it was %s, attempt %d", key, v.verdicts[key], b.Attempt)
			}
			v.verdicts[key] = "respawned"
		case events.JobRespawnDenied:
			key := b.Place.String() + string(b.Dead)
			if v.verdicts[key] == "respawn-denied" {
				t.Fatalf("%s was denied a respawn twice", key)
			}
			v.verdicts[key] = "respawn-denied"
		case events.JobFailureCounted:
			key := b.Place.String() + string(b.Worker)
			if v.counted[key] || (b.Generation > 0 && v.paid[b.Generation]) || b.Kind == "" || b.Detail == "" {
				t.Fatalf("counted twice, or without a reason: %+v", b)
			}
			v.counted[key], v.paid[b.Generation] = true, true
		case events.JobFinishing:
			v.finish++
		case events.JobSucceeded, events.JobFailed, events.JobStopped:
			v.ends++
		}
	}
	if v.ends > 1 || v.finish > 1 || (v.ends == 1) != view.State.Terminal() {
		t.Fatalf("%d ends and %d finishings were published, the job is %s", v.ends, v.finish, view.State)
	}
	if v.open != (view.OpenIncident != nil) || (view.State.Terminal() && v.open) {
		t.Fatalf("published open=%v, shown %+v, job %s", v.open, view.OpenIncident, view.State)
	}
	if len(view.Failures) > v.budget && view.State != events.JobStateFailed {
		t.Fatalf("%d failures of %d allowed, and the job is %s", len(view.Failures), v.budget, view.State)
	}
	for _, w := range view.Workers {
		if !w.State.Ended() && view.State == events.JobStateRunning { // it returned before its replacement started
			delete(v.verdicts, w.Place.String()+string(w.Incarnation))
		}
	}
	for _, g := range view.Generations {
		if r := g.Reported; min(r.Ready, r.Success, r.Failure) < 0 || r.Ready+r.Success+r.Failure > g.World {
			t.Fatalf("%s of %d workers has reports of %+v", g.Generation, g.World, r)
		}
	}
	for i := 1; i < len(view.Workers); i++ {
		if view.Workers[i-1].Place.Compare(view.Workers[i].Place) >= 0 {
			t.Fatalf("workers are not by place: %v", view.Workers)
		}
	}
	if view.State.Terminal() {
		v.terminal = string(now)
	}
}
