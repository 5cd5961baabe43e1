package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/regroup-io/regroup/client"
	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/traces/tree"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// job is a job on a cluster whose processes all send their spans to Jaeger.
type job struct {
	*cluster.Cluster
	id ident.JobID
}

const (
	gatewayToken = "of-the-test-of-traces" //nolint:gosec // of a cluster that ends with this program
	world        = 3
)

// startCluster starts a broker, the services, a gateway and an agent.
func startCluster(ctx context.Context, bin string, j *jaeger) (*job, error) {
	c, err := cluster.Start(ctx, cluster.Options{Bin: bin, Name: "traces", Nodes: 1, Slots: world, Gateway: true, Level: "info", Log: os.Stderr, Env: []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + j.otlp, "REGROUP_GATEWAY_TOKEN=" + gatewayToken, "OTEL_EXPORTER_OTLP_HEADERS=x-agents=alone",
	}})
	return &job{Cluster: c}, err
}

// traced adds a trace to each request.
type traced struct{ parent string }

func (t traced) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Traceparent", t.parent)
	return http.DefaultTransport.RoundTrip(r)
}

// gateway returns a client of the gateway, whose requests are a part of a trace.
func (b *job) gateway(trace http.RoundTripper) (*client.Client, error) {
	return client.New(client.Options{URL: "http://" + b.Gateway, Token: gatewayToken, HTTP: &http.Client{Transport: trace}})
}

// submit submits the job to the gateway, as a part of a trace.
func (b *job) submit(ctx context.Context, command, traceparent string) error {
	c, err := b.gateway(traced{traceparent})
	if err != nil {
		return err
	}
	b.id, err = c.Submit(ctx, spec.Job{Name: "traced", Command: []string{command}, Recovery: spec.RecoveryInProcess, Workers: spec.Workers{Min: 2, Max: world}})
	return err
}

// stop asks the gateway to stop the job, and waits until it has ended.
func (b *job) stop(ctx context.Context) (events.JobView, error) {
	c, err := b.gateway(nil)
	if err == nil {
		_, err = c.Stop(ctx, b.id, "", false)
	}
	if err != nil {
		return events.JobView{}, err
	}
	return b.JobIs(ctx, b.id, "it has ended", func(v events.JobView) bool { return v.State.Terminal() })
}

// trains waits until all workers train in a generation after another one, for so many steps that
// their programs have sent spans, and returns the view.
func (b *job) trains(ctx context.Context, after ident.Generation) (events.JobView, error) {
	var from uint64
	return b.JobIs(ctx, b.id, fmt.Sprintf("%d workers train after %s", world, after), func(v events.JobView) bool {
		g := v.Generations
		if v.OpenIncident != nil || v.Generation <= after || len(g) == 0 || !g[len(g)-1].Ready || g[len(g)-1].World != world {
			return false
		}
		if from == 0 {
			from = v.Step + 1
		}
		return v.Step >= from+50
	})
}

// kill kills the worker of a rank, and returns which one it was.
func (b *job) kill(v events.JobView, rank ident.Rank) (tables.WorkerView, error) {
	for _, w := range v.Workers {
		if w.Rank == rank && w.PID > 0 && !w.State.Ended() {
			return w, syscall.Kill(w.PID, syscall.SIGKILL)
		}
	}
	return tables.WorkerView{}, fmt.Errorf("%s has no worker with rank %d", b.id, rank)
}

// end ends all processes, which then send their last spans.
func (b *job) end(ctx context.Context) error {
	for _, name := range slices.Concat(b.Nodes, []string{"gateway"}, b.Services(), b.Brokers) {
		if err := b.Processes.End(ctx, name, syscall.SIGTERM); err != nil {
			return err
		}
	}
	return nil
}

// The program of docs/traces.md, and how many spans each of its workers has.
const (
	document    = "docs/traces.md"
	epochs      = 10
	scriptRanks = 2
)

// script runs the program of the document as a job, with a Python that has OpenTelemetry.
func (b *job) script(ctx context.Context, python string) (ident.JobID, error) {
	text, err := os.ReadFile(document)
	_, code, _ := strings.Cut(string(text), "```python\n")
	code, _, found := strings.Cut(code, "```\n")
	if !found {
		return "", fmt.Errorf("%s has no Python program: %w", document, err)
	}
	program := filepath.Join(b.Processes.Dir, "example.py")
	packages, err := filepath.Abs("python")
	c, err1 := b.gateway(nil)
	if err := errors.Join(err, err1, os.WriteFile(program, []byte(code), 0o600)); err != nil {
		return "", err
	}
	id, err := c.Submit(ctx, spec.Job{
		Name: "script", Command: []string{python, program}, Workers: spec.Workers{Min: scriptRanks, Max: scriptRanks},
		Env: map[string]string{"OTEL_SERVICE_NAME": "script", "PYTHONPATH": packages},
	})
	if err != nil {
		return "", err
	}
	v, err := b.JobIs(ctx, id, "it has ended", func(v events.JobView) bool { return v.State.Terminal() })
	if err == nil && v.State != events.JobStateSucceeded {
		err = fmt.Errorf("%s is %s: %s", id, v.State, v.Reason)
	}
	return id, err
}

// program checks the trace of the document's program: each of its spans is below the process of its
// worker, and within it.
func (c *checker) program(id string) {
	for _, run := range tree.Named(c.traces[id], "worker", "worker process") {
		below := 0
		for _, s := range tree.Named(c.traces[id], "script", "epoch") {
			if s.Parent == run.ID && tree.Within(s, run) {
				below++
			}
		}
		if below != epochs {
			c.say("trace %s: %s has %d spans of its program below it, not %d", id, run, below, epochs)
		}
	}
	if n := len(tree.Named(c.traces[id], "worker", "worker process")); n != scriptRanks {
		c.say("trace %s has %d workers, not %d", id, n, scriptRanks)
	}
}
