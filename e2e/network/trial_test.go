package network

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/record"
	"github.com/regroup-io/regroup/e2e/report"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
)

// trial is one job under one kind of fault.
type trial struct {
	*Datacenter
	t   *testing.T
	ctx context.Context
	run *cluster.Run
	at  ident.Generation // the last generation that was seen training

	marks []mark
	began time.Time
}

// mark is one fault, from its start to the end of its effects.
type mark struct {
	what     string
	from, to time.Time
}

// within returns a context that ends with the test or after a time.
func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, fmt.Errorf("not within %v", limit))
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// begin submits a job of eight workers on four nodes and waits until they train.
func begin(t *testing.T, c *Datacenter) *trial {
	t.Helper()
	name, _, _ := strings.Cut(strings.ToLower(strings.ReplaceAll(t.Name()[strings.LastIndex(t.Name(), "/")+1:], "_", "-")), "#")
	tr := &trial{Datacenter: c, t: t, ctx: within(t, 6*time.Minute), began: time.Now()}
	must(t, c.Ready(tr.ctx))
	var err error
	tr.run, err = c.Train(tr.ctx, cluster.Training{
		Name: "net-" + name[:min(len(name), 40)], Workers: spec.Workers{Min: 2, Max: 8}, Samples: 3000, Batch: 48, CommitEvery: 5, StepTime: 10 * time.Millisecond,
	})
	must(t, err)
	t.Cleanup(tr.history)
	tr.trains(8)
	return tr
}

// history logs the facts since the submission of the job, if the test has failed or is verbose.
func (tr *trial) history() {
	if !tr.t.Failed() && !*history {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tr.ctx), 10*time.Second)
	defer cancel()
	all, err := tr.Facts(ctx, events.AllFacts)
	if err != nil {
		tr.t.Log(err)
	}
	for _, e := range all {
		f := e.Body.Type().Family()
		if e.Time.Before(tr.began) || f != events.FamilyNode && e.Entity != string(tr.run.Job) {
			continue
		}
		b, err := json.Marshal(e.Body)
		if err != nil {
			b = []byte(err.Error())
		}
		tr.t.Logf("%s #%d %s.%s %s", e.Time.Format("05.000"), e.Number, f, e.Body.Type().Kind(), b[:min(len(b), 400)])
	}
}

// trains waits until a new generation of so many workers trains.
func (tr *trial) trains(world int) events.GenerationView {
	tr.t.Helper()
	g, err := tr.run.Trains(tr.ctx, tr.at, world)
	must(tr.t, err)
	tr.at = g.Generation
	return g
}

// fault records the start of a fault, until over is called.
func (tr *trial) fault(what string) (over func()) {
	from := time.Now()
	return func() { tr.marks = append(tr.marks, mark{what, from, time.Now()}) }
}

// passes waits: these faults depend on time.
func (tr *trial) passes(d time.Duration) {
	tr.t.Helper()
	select {
	case <-time.After(d):
	case <-tr.ctx.Done():
		tr.t.Fatal(context.Cause(tr.ctx))
	}
}

// makes waits until the job makes n more steps.
func (tr *trial) makes(n int) {
	tr.t.Helper()
	must(tr.t, tr.run.Makes(tr.ctx, 8*n)) // up to eight workers record each step
}

func (tr *trial) signal(s syscall.Signal, names ...string) {
	tr.t.Helper()
	for _, n := range names {
		must(tr.t, tr.Processes.Signal(n, s))
	}
}

func (tr *trial) kill(names ...string) {
	tr.t.Helper()
	for _, n := range names {
		must(tr.t, tr.Processes.Kill(n))
	}
}

func (tr *trial) restart(names ...string) {
	tr.t.Helper()
	for _, n := range names {
		must(tr.t, tr.Processes.Restart(n))
	}
}

// killWorker kills the last worker of a node.
func (tr *trial) killWorker(node string) {
	tr.t.Helper()
	pids, err := tr.Workers(node, tr.run.Job)
	must(tr.t, err)
	if len(pids) == 0 {
		tr.t.Fatalf("%s has no workers", node)
	}
	must(tr.t, syscall.Kill(pids[len(pids)-1], syscall.SIGKILL))
}

// ends finishes the job and verifies it; its faults become rows of the report.
func (tr *trial) ends() (*record.History, record.Account) {
	tr.t.Helper()
	must(tr.t, tr.run.Finish())
	h, a, err := tr.run.Ends(tr.ctx)
	must(tr.t, err)
	_, err = tr.Same(within(tr.t, time.Minute), tr.run.Job)
	must(tr.t, err)
	steps := h.Steps()
	for _, m := range tr.marks {
		p := record.Longest(steps, m.from, m.to)
		tr.t.Logf("%s: %v without a step, %d steps lost", m.what, p.Length().Round(time.Millisecond), h.Lost(m.from, m.to))
		results.add(m.what, p.Length(), h.Lost(m.from, m.to))
	}
	tr.t.Logf("%+v", a)
	return h, a
}

// table collects the results of all faults.
type table struct {
	mu    sync.Mutex
	order []string
	rows  map[string][]outcome
}

type outcome struct {
	pause time.Duration
	lost  int
}

var results table

func (r *table) add(what string, pause time.Duration, lost int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rows == nil {
		r.rows = map[string][]outcome{}
	}
	if !slices.Contains(r.order, what) {
		r.order = append(r.order, what)
	}
	r.rows[what] = append(r.rows[what], outcome{pause, lost})
}

// markdown is the section of the reliability document.
func (r *table) markdown() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	b.WriteString("Measured on " + report.Machine() + ". Eight workers on four nodes, three brokers, two replicas of every service, each on a host of its own.\n" +
		"All jobs succeeded, with no sample missing and none repeated.\n\n" +
		"| fault | trials | recovered | without a step, median | max | steps made again, most |\n|---|---|---|---|---|---|\n")
	for _, what := range r.order {
		var pauses []time.Duration
		lost := 0
		for _, o := range r.rows[what] {
			pauses = append(pauses, o.pause)
			lost = max(lost, o.lost)
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d ms | %d ms | %d |\n", what, len(pauses), len(pauses),
			report.Quantile(pauses, 0.5).Milliseconds(), report.Quantile(pauses, 1).Milliseconds(), lost)
	}
	return b.String()
}
