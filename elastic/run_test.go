package elastic

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/elastictest"
	"github.com/regroup-io/regroup/elastic/internal/agentclient"
	"github.com/regroup-io/regroup/elastic/internal/updates"
	"github.com/regroup-io/regroup/elastic/samples"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

func TestUndisturbedFleetEqualsOneWorker(t *testing.T) {
	f := newFleet(t, 4)
	for i := range 4 {
		f.start(fmt.Sprint("w", i))
	}
	f.finish()
	if done := f.check("w0"); done != 4 {
		t.Errorf("%d workers are done, want 4", done)
	}
	for _, w := range f.all() {
		if len(w.calls) != 1 || w.calls[0].World != 4 {
			t.Errorf("%s: calls %+v", w.name, w.calls)
		}
	}
}

func TestSurvivorsGoBackToTheCommitAndFinish(t *testing.T) {
	f := newFleet(t, 4)
	f.onStep = func(_ context.Context, w *worker, s *Session) error {
		if w.name == "w2" && s.Step() == 13 {
			// Its peers notice before its agent does: one that first hears that the generation
			// is over accuses nobody.
			f.hub.Network.Kill("w2")
			eventually(t, func() (accused bool) {
				f.hub.Update(func() { accused = f.accused(2) })
				return accused
			})
			f.kill("w2")
		}
		return nil
	}
	for i := range 4 {
		f.start(fmt.Sprint("w", i))
	}
	f.finish()
	if done := f.check("w0"); done != 3 {
		t.Errorf("%d workers are done, want 3", done)
	}
	second := f.hub.FirstSteps[2]
	if len(second) != 3 {
		t.Fatalf("%d first steps of generation 2, want 3", len(second))
	}
	for name, r := range second {
		// The connections were reset with what was under way, which may have been the end of step
		// 13.
		if lost := r.First.Lost; r.Step != 11 || !r.First.Survivor || lost < 2 || lost > 3 {
			t.Errorf("%s: first step %d, survivor %v, lost %d; want step 11 after commit 10 with 2 or 3 void", name, r.Step, r.First.Survivor, r.First.Lost)
		}
		if r.First.AbortMS < 0 || r.First.RejoinMS <= 0 || r.First.StepMS <= 0 {
			t.Errorf("%s: phases %+v", name, *r.First)
		}
	}
	for _, j := range f.hub.Joins {
		if j.Left == 1 && (j.Planned || j.Commit.Step != 10) {
			t.Errorf("join %+v, want an unplanned one with commit 10", j)
		}
	}
	if !f.accused(2) {
		t.Error("nobody accuses rank 2")
	}
}

// TestAPlannedChangeWithoutACommitGoesBack: a training function that asks for the next generation
// by itself, between two commits, begins it with the last one, and not with the tensors of one step
// and the values of another.
func TestAPlannedChangeWithoutACommitGoesBack(t *testing.T) {
	f := newFleet(t, 3)
	f.onStep = func(_ context.Context, _ *worker, s *Session) error {
		if s.Generation == 1 && s.Step() == 13 {
			return ErrPlannedChange
		}
		return nil
	}
	for i := range 3 {
		f.start(fmt.Sprint("w", i))
	}
	f.finish()
	if done := f.check("w0"); done != 3 {
		t.Errorf("%d workers are done, want 3", done)
	}
	for name, r := range f.hub.FirstSteps[2] {
		if r.Step != 11 || r.First.Lost != 3 {
			t.Errorf("%s: first step %d, lost %d; want step 11 after commit 10 with 3 void", name, r.Step, r.First.Lost)
		}
	}
}

// TestEachGenerationHasItsTrace: the training function is told the current one.
func TestEachGenerationHasItsTrace(t *testing.T) {
	f := newFleet(t, 3)
	var mu sync.Mutex
	seen := map[string]bool{}
	f.onStep = func(_ context.Context, w *worker, s *Session) error {
		mu.Lock()
		defer mu.Unlock()
		seen[s.Traceparent] = true
		if want := elastictest.Traceparent(s.Generation, s.Rank); s.Traceparent != want {
			t.Errorf("%s in generation %d: traceparent %q, want %q", w.name, s.Generation, s.Traceparent, want)
		}
		if w.name == "w2" && s.Step() == 13 {
			f.kill("w2")
		}
		return nil
	}
	for i := range 3 {
		f.start(fmt.Sprint("w", i))
	}
	f.finish()
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != 5 {
		t.Errorf("%d traceparents, want 3 of the first generation and 2 of the second: %v", len(seen), seen)
	}
}

func TestNewcomerIsTakenInAtACommitOfAllRanks(t *testing.T) {
	f := newFleet(t, 2)
	f.every = 1000 // only the news makes a commit due
	var once sync.Once
	f.onStep = func(_ context.Context, w *worker, s *Session) error {
		if s.Generation == 1 && s.Step() == 9 {
			once.Do(func() { f.start("late") })
		}
		if w.name == "w1" && s.Generation == 1 && s.Step() == 20 { // one rank knowing is enough
			eventually(t, func() bool { return s.updates.Pending() == updates.Planned })
		}
		return nil
	}
	f.start("w0")
	f.start("w1")
	f.finish()
	if done := f.check("w0"); done != 3 {
		t.Errorf("%d workers are done, want 3", done)
	}
	var at []uint64
	for _, j := range f.hub.Joins {
		if j.Left == 1 && j.Planned {
			at = append(at, j.Commit.Step)
		}
	}
	if len(at) != 2 || at[0] != at[1] || at[0] == 0 {
		t.Errorf("the members left after commits %v, want two equal ones", at)
	}
	for name, r := range f.hub.FirstSteps[2] {
		if r.First.Lost != 0 || r.Step != at[0]+1 {
			t.Errorf("%s: a planned change lost %d steps, first step %d", name, r.First.Lost, r.Step)
		}
		if name != "late" && r.First.SyncBytes > 0 {
			t.Errorf("%s received %d bytes", name, r.First.SyncBytes)
		}
	}
}

// TestAChangeThatIsUndoneIsNotMade: both ranks have heard of it, and that it is off, before a
// commit carries it.
func TestAChangeThatIsUndoneIsNotMade(t *testing.T) {
	f := newFleet(t, 2)
	var heard, back atomic.Int64
	f.onStep = func(_ context.Context, w *worker, s *Session) error {
		if s.Generation != 1 || s.Step() != 8 {
			return nil
		}
		f.hub.Update(func() { f.hub.Planned = true })
		eventually(t, func() bool { return s.updates.Pending() == updates.Planned })
		heard.Add(1)
		eventually(t, func() bool { return heard.Load() == 2 })
		f.hub.Update(func() { f.hub.Withdrawn = true })
		eventually(t, func() bool { return s.updates.Pending() == updates.None })
		back.Add(1)
		eventually(t, func() bool { return back.Load() == 2 })
		return nil
	}
	f.start("w0")
	f.start("w1")
	f.finish()
	if done := f.check("w0"); done != 2 || f.hub.Generation != 1 {
		t.Errorf("%d workers are done in generation %d, want 2 in 1", done, f.hub.Generation)
	}
}

func TestAStopCommitsAndIsNoEndOfTheTraining(t *testing.T) {
	f := newFleet(t, 3)
	f.onStep = func(_ context.Context, w *worker, s *Session) error {
		if w.name == "w1" && s.Step() == 7 {
			f.hub.Update(func() { f.hub.Stopping = true })
		}
		if w.name == "w1" && s.Step() == 8 {
			eventually(t, func() bool { return s.updates.Pending() == updates.Stop })
		}
		return nil
	}
	for i := range 3 {
		f.start(fmt.Sprint("w", i))
	}
	f.finish()
	steps := map[uint64]bool{}
	for _, w := range f.all() {
		if !errors.Is(w.err, ErrStopped) || !errors.Is(w.err, ErrUnfinished) {
			t.Errorf("%s: %v, want ErrStopped", w.name, w.err)
		}
		if w.state.Committed().Step != w.state.Step() {
			t.Errorf("%s stopped at step %d with commit %d", w.name, w.state.Step(), w.state.Committed().Step)
		}
		steps[w.state.Step()] = true
	}
	if len(steps) != 1 || len(f.hub.Done) != 0 {
		t.Errorf("steps %v, done %d", steps, len(f.hub.Done))
	}
}

func TestAgentsNoticeAbortsTheGeneration(t *testing.T) {
	f := newFleet(t, 3)
	f.onStep = func(_ context.Context, w *worker, s *Session) error {
		if s.Generation == 1 && s.Step() == 8 {
			if w.name == "w0" {
				f.hub.Update(func() { f.hub.Lost = 1 })
			}
			eventually(t, func() bool { return s.comm.Failed() != nil })
		}
		return nil
	}
	for i := range 3 {
		f.start(fmt.Sprint("w", i))
	}
	f.finish()
	if done := f.check("w0"); done != 3 || f.hub.Generation != 2 {
		t.Errorf("%d workers are done in generation %d, want 3 in 2", done, f.hub.Generation)
	}
}

func TestAgentIsAwayForAWhile(t *testing.T) {
	f := newFleet(t, 2)
	f.hub.Refuse = 12
	f.start("w0")
	f.start("w1")
	f.finish()
	if done := f.check("w0"); done != 2 {
		t.Errorf("%d workers are done, want 2", done)
	}
	last := f.hub.Commits[len(f.hub.Commits)-1]
	if last.Ledger.Epochs[testEpochs-1].Count != testSamples {
		t.Errorf("the last commit report is %+v", last)
	}
}

func TestRandomFaultsLoseAndRepeatNothing(t *testing.T) {
	for seed := range uint64(50) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			randomFaults(t, seed)
		})
	}
}

// randomFaults kills workers, lets new ones in and aborts generations at random steps of random
// workers.
func randomFaults(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	n := 1 + rng.IntN(5)
	f := newFleet(t, n)
	f.every = 1 + rng.IntN(8)
	type fault struct{ step, kind, pick int }
	var faults []fault
	for range 1 + rng.IntN(6) {
		faults = append(faults, fault{rng.IntN(2 * (testSamples/testBatch + 1)), rng.IntN(4), rng.IntN(100)})
	}
	var mu sync.Mutex
	living, dead := n, map[string]bool{}
	f.onStep = func(_ context.Context, w *worker, s *Session) error {
		var deaths []string
		var births []string
		abort := false
		mu.Lock()
		for i, x := range faults {
			if uint64(x.step) != s.Step() || x.pick%s.World != s.Rank {
				continue
			}
			faults[i].step = -1
			switch {
			case x.kind <= 1 && living > 1 && !dead[w.name]:
				living--
				dead[w.name] = true
				deaths = append(deaths, w.name)
			case x.kind == 2:
				living++
				births = append(births, fmt.Sprint("late", i))
			case x.kind == 3:
				abort = true
			}
		}
		mu.Unlock()
		for _, name := range births {
			f.start(name)
		}
		for _, name := range deaths {
			f.kill(name)
		}
		if abort {
			f.hub.Update(func() {
				if s.Generation == f.hub.Generation && s.World > 1 {
					f.hub.Lost = (s.Rank + 1) % s.World
				}
			})
		}
		return nil
	}
	// Some die when their generation is sealed: before, while or after it is built and in sync.
	f.hub.OnSeal = func(generation uint64, members []string) {
		mu.Lock()
		defer mu.Unlock()
		if generation < 6 && rng.IntN(4) == 0 && living > 1 {
			name := members[rng.IntN(len(members))]
			if !dead[name] {
				living--
				dead[name] = true
				f.wait.Go(func() { f.kill(name) })
			}
		}
	}
	for i := range n {
		f.start(fmt.Sprint("w", i))
	}
	f.finish()
	// If every holder of a commit died before another had it, the next rank 0 starts from its own.
	var starts []string
	for _, w := range f.all() {
		starts = append(starts, w.name)
	}
	// A worker may be killed after its done.
	if done := f.check(starts...); done == 0 && len(f.hub.Done) == 0 {
		t.Error("nobody is done")
	}
}

func TestBrokenProgramFailsAndTheOthersGoOn(t *testing.T) {
	f := newFleet(t, 3)
	f.onStep = func(_ context.Context, w *worker, s *Session) error {
		if w.name == "w1" && s.Step() == 6 {
			return errBroken
		}
		return nil
	}
	for i := range 3 {
		f.start(fmt.Sprint("w", i))
	}
	f.finish()
	if done := f.check("w0"); done != 2 || !errors.Is(f.workers["w1"].err, errBroken) {
		t.Errorf("%d workers are done, the broken one says %v", done, f.workers["w1"].err)
	}
}

func TestFleetOverTCP(t *testing.T) {
	f := newFleet(t, 2)
	f.tcp = true
	var once sync.Once
	f.onStep = func(_ context.Context, w *worker, s *Session) error {
		if s.Generation == 1 && s.Step() == 9 {
			once.Do(func() { f.start("late") })
		}
		if w.name == "w0" && s.Generation == 1 && s.Step() == 12 {
			eventually(t, func() bool { return s.updates.Pending() == updates.Planned })
		}
		return nil
	}
	f.start("w0")
	f.start("w1")
	f.finish()
	if done := f.check("w0"); done != 3 || f.hub.Generation != 2 {
		t.Errorf("%d workers are done in generation %d, want 3 in 2", done, f.hub.Generation)
	}
}

// TestLossEndsTheBuilding lets a member vanish that neither connects nor refuses: the agent's news
// must be enough.
func TestLossEndsTheBuilding(t *testing.T) {
	f := newFleet(t, 2)
	if _, err := f.hub.Network.Listen("ghost"); err != nil {
		t.Fatal(err)
	}
	f.hub.Update(func() {
		f.hub.Alive["ghost"], f.hub.Address["ghost"] = true, "ghost"
		f.hub.Joined["ghost"] = workerprotocol.JoinRequest{Address: "ghost"}
	})
	began := time.Now()
	f.start("w0")
	f.hub.Wait(t.Context(), hangs, func() bool { return f.hub.Generation == 1 })
	f.hub.Update(func() {
		delete(f.hub.Alive, "ghost")
		f.hub.Lost = slices.Index(f.hub.Members, "ghost")
	})
	f.finish()
	if took := time.Since(began); f.check("w0") != 1 || took >= buildWithin {
		t.Errorf("the end after %v, generation %d", took, f.hub.Generation)
	}
	if first := f.hub.FirstSteps[2]["w0"]; first.First == nil || !first.First.Survivor || first.First.AbortMS <= 0 {
		t.Errorf("first step %+v: the generation that was never built is part of the way", first)
	}
}

func TestFirstStepIsToldUntilItIsHeard(t *testing.T) {
	h := elastictest.New(t, 1)
	h.Refuse = 2
	c := agentclient.New(h.Socket, "w", time.Minute)
	defer c.Close()
	r := agentclient.NewReporter(t.Context(), c)
	r.First(&workerprotocol.Report{Generation: 1, Step: 5, First: &workerprotocol.FirstStep{}})
	r.Progress(&workerprotocol.Report{Generation: 1, Step: 6})
	if !h.Wait(t.Context(), hangs, func() bool { return h.FirstSteps[1]["w"].Step == 5 }) {
		t.Error("the agent never heard of the first step")
	}
	r.Close()
}

func TestReportsNameTheSlowestRank(t *testing.T) {
	const workers = 3
	f := newFleet(t, workers)
	// The heartbeat interval is a part of StallAfter.
	f.options = func(_ string, o *Options) { o.StallAfter = 400 * time.Millisecond }
	slow := -1
	var done atomic.Bool         // it was named; when the work is over, it may be another
	named := func() (all bool) { // by all, at last: while they begin, it may be another
		f.hub.Update(func() {
			all = len(f.hub.Slowest) == workers
			for _, s := range f.hub.Slowest {
				all = all && s.Rank == slow && s.Share > 0
			}
		})
		return all
	}
	f.onStep = func(_ context.Context, w *worker, s *Session) error {
		if w.name == "w1" {
			f.hub.Update(func() { slow = s.Rank })
		}
		if s.Step() == 1 { // as many more reductions as it takes
			over := make([]int32, 1)
			for end := time.Now().Add(hangs); over[0] == 0; {
				if w.name == "w1" {
					// The work of a slow rank: its length makes the others wait, and nothing waits
					// for it to be over.
					time.Sleep(5 * time.Millisecond)
				}
				if named() {
					done.Store(true)
				}
				if done.Load() || time.Now().After(end) {
					over[0] = 1
				}
				s.reportProgress()
				if err := collective.Allreduce(t.Context(), s.Comm(), over, collective.Max); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for i := range workers {
		f.start(fmt.Sprint("w", i))
	}
	f.finish()
	if !done.Load() {
		t.Errorf("named are %+v, want rank %d by all", f.hub.Slowest, slow)
	}
}

// TestMetricsKeepTheStepThatTheyAreOf: they are repeated, and are not taken for those of a later
// step; only rank 0's are told.
func TestMetricsKeepTheStepThatTheyAreOf(t *testing.T) {
	f := newFleet(t, 2)
	f.onStep = func(_ context.Context, w *worker, s *Session) error {
		if s.Step() == 3 {
			s.Report(map[string]float64{"loss": 0.5, "rank": float64(s.Rank)})
		}
		return nil
	}
	f.start("w0")
	f.start("w1")
	f.finish()
	f.check("w0", "w1")
	first := f.hub.Members[0]
	for name, d := range f.hub.Done {
		switch {
		case name != first && d.Metrics != nil:
			t.Errorf("%s tells %v and is not rank 0", name, d.Metrics)
		case name == first && (d.Metrics["loss"] != 0.5 || d.Metrics["rank"] != 0 || d.MetricsStep == nil || *d.MetricsStep != 3 || d.Step <= 3):
			t.Errorf("rank 0 tells %v after step %v, and is done after %d", d.Metrics, d.MetricsStep, d.Step)
		}
	}
}

func TestMetricsThatJSONCannotSayAreLeftOut(t *testing.T) {
	if m := agentclient.Finite(map[string]float64{"a": 1, "b": math.NaN(), "c": math.Inf(-1)}); len(m) != 1 || m["a"] != 1 {
		t.Errorf("metrics %v", m)
	}
}

// TestReturningBeforeTheOthers: a rank that thinks it is through must not take another's commit for
// the end.
func TestReturningBeforeTheOthers(t *testing.T) {
	f := newFleet(t, 2)
	f.every = 1000
	f.onStep = func(ctx context.Context, w *worker, s *Session) error {
		switch {
		case s.Step() == 9 && w.name == "w1":
			return errEarly
		case s.Step() == 9:
			return s.Commit(ctx)
		}
		return nil
	}
	f.start("w0")
	f.start("w1")
	f.finish()
	// The one that sees it first fails; the other may only see that one go, and try again.
	drifted := false
	for _, w := range f.all() {
		drifted = drifted || errors.Is(w.err, samples.ErrDiverged)
	}
	if !drifted {
		t.Error("no rank saw that they have drifted apart")
	}
	for name, d := range f.hub.Done {
		if d.Generation == 1 {
			t.Errorf("%s is done in the generation in which the ranks disagreed", name)
		}
	}
}
