package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/events"
)

// job is a job on a cluster whose processes all send their spans to Jaeger.
type job struct {
	procs   *cluster.Processes
	client  *cluster.Client
	regroup string
	gateway string
	env     []string
	id      events.JobID
}

const (
	gatewayToken = "of-the-test-of-traces" //nolint:gosec // of a cluster that ends with this program
	world        = 3
)

// startCluster starts a broker, the services, a gateway and an agent.
func startCluster(ctx context.Context, p *cluster.Processes, regroup string, j *jaeger) (*job, error) {
	var at [2]string
	for i := range at {
		var err error
		if at[i], err = cluster.FreeAddress(); err != nil {
			return nil, err
		}
	}
	b := &job{procs: p, regroup: regroup, gateway: "http://" + at[1], env: []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + j.otlp, "REGROUP_GATEWAY_TOKEN=" + gatewayToken, "OTEL_EXPORTER_OTLP_HEADERS=x-agents=alone",
	}}
	url := "nats://" + at[0]
	if err := b.start("nats", "serve", "nats", "--listen", at[0]); err != nil {
		return nil, err
	}
	var err error
	if b.client, err = cluster.Connect(ctx, url, "traces", os.Stderr); err != nil {
		return nil, err
	}
	for _, s := range events.ServiceNames() {
		if err := b.start(s, "serve", s, "--server", url); err != nil {
			return nil, err
		}
	}
	if err := b.start("gateway", "serve", "gateway", "--listen", at[1], "--server", url); err != nil {
		return nil, err
	}
	if err := b.start("agent", "agent", "--server", url, "--node", "node-a", "--slots", fmt.Sprint(world), "--advertise", "127.0.0.1"); err != nil {
		return nil, err
	}
	return b, cluster.Until(ctx, func() (bool, error) {
		v, err := cluster.View[events.NodeView](ctx, b.client, events.BucketNodes, "node-a")
		return err == nil && v.Schedulable(), err
	})
}

func (b *job) start(name string, args ...string) error {
	args = append([]string{b.regroup}, append(args, "--state-dir", filepath.Join(b.procs.Dir, name))...)
	return b.procs.Start(cluster.Command{Name: name, Args: args, Env: b.env})
}

// submit submits the job to the gateway, as a part of a trace.
func (b *job) submit(ctx context.Context, command, traceparent string) error {
	spec := fmt.Appendf(nil, `{"name": "traced", "command": [%q], "recovery": "in-process", "workers": {"min": 2, "max": %d}}`, command, world)
	var err error
	b.id, err = b.submitted(ctx, spec, traceparent)
	return err
}

// submitted submits a job, and returns its id.
func (b *job) submitted(ctx context.Context, spec []byte, traceparent string) (events.JobID, error) {
	var got struct {
		Job events.JobID `json:"job"`
	}
	err := cluster.Until(ctx, func() (bool, error) { // the gateway may not listen yet
		body, status, err := b.ask(ctx, http.MethodPost, "/api/v1/jobs", spec, traceparent)
		if err != nil || status != http.StatusCreated {
			return false, fmt.Errorf("submit: %d %s %w", status, body, err)
		}
		err = json.Unmarshal(body, &got)
		return err == nil, err
	})
	return got.Job, err
}

// stop asks the gateway to stop the job, and waits until it has ended.
func (b *job) stop(ctx context.Context) error {
	body, status, err := b.ask(ctx, http.MethodPost, "/api/v1/jobs/"+string(b.id)+"/stop", []byte(`{}`), "")
	if err != nil || status != http.StatusOK {
		return fmt.Errorf("stop: %d %s %w", status, body, err)
	}
	return cluster.Until(ctx, func() (bool, error) {
		v, err := b.client.Job(ctx, b.id)
		return err == nil && v.State.Terminal(), err
	})
}

func (b *job) ask(ctx context.Context, method, path string, text []byte, traceparent string) ([]byte, int, error) {
	r, err := http.NewRequestWithContext(ctx, method, b.gateway+path, bytes.NewReader(text))
	if err != nil {
		return nil, 0, err
	}
	r.Header.Set("Authorization", "Bearer "+gatewayToken)
	r.Header.Set("Content-Type", "application/json")
	if traceparent != "" {
		r.Header.Set("Traceparent", traceparent)
	}
	return do(r)
}

// do makes a request.
func do(r *http.Request) ([]byte, int, error) {
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, 0, err
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	return body, a.StatusCode, err
}

// trains waits until all workers train in a generation after another one, for so many steps that
// their programs have sent spans, and returns the view.
func (b *job) trains(ctx context.Context, after events.Generation) (v events.JobView, err error) {
	var from uint64
	return v, cluster.Until(ctx, func() (bool, error) {
		if v, err = b.client.Job(ctx, b.id); err != nil {
			return false, err
		}
		g := v.Generations
		if v.OpenIncident != nil || v.Generation <= after || len(g) == 0 || !g[len(g)-1].Ready || g[len(g)-1].World != world {
			return false, fmt.Errorf("%s is in %s, after %d incidents, not in a later one than %s with %d workers", b.id, v.Generation, len(v.Incidents), after, world)
		}
		if from == 0 {
			from = v.Step + 1
		}
		return v.Step >= from+50, nil
	})
}

// kill kills the worker of a rank, and returns which one it was.
func (b *job) kill(v events.JobView, rank int) (events.WorkerView, error) {
	for _, w := range v.Workers {
		if w.Rank == rank && w.PID > 0 && !w.State.Ended() {
			return w, syscall.Kill(w.PID, syscall.SIGKILL)
		}
	}
	return events.WorkerView{}, fmt.Errorf("%s has no worker with rank %d", b.id, rank)
}

// end ends all processes, which then send their last spans.
func (b *job) end() {
	for _, name := range append([]string{"agent", "gateway"}, append(events.ServiceNames(), "nats")...) {
		if b.procs.Signal(name, syscall.SIGTERM) == nil {
			_ = cluster.Until(limited(), func() (bool, error) { return !b.procs.Running(name), nil })
		}
	}
}

// limited returns a context for the end of a process.
func limited() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	context.AfterFunc(ctx, cancel)
	return ctx
}
