package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"syscall"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/events"
)

// job is a job on a cluster whose processes all send their spans to Jaeger.
type job struct {
	*cluster.Cluster
	id events.JobID
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
func (b *job) stop(ctx context.Context) (events.JobView, error) {
	body, status, err := b.ask(ctx, http.MethodPost, "/api/v1/jobs/"+string(b.id)+"/stop", []byte(`{}`), "")
	if err != nil || status != http.StatusOK {
		return events.JobView{}, fmt.Errorf("stop: %d %s %w", status, body, err)
	}
	return b.JobIs(ctx, b.id, "it has ended", func(v events.JobView) bool { return v.State.Terminal() })
}

func (b *job) ask(ctx context.Context, method, path string, text []byte, traceparent string) ([]byte, int, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+b.Gateway+path, bytes.NewReader(text))
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
func (b *job) trains(ctx context.Context, after events.Generation) (events.JobView, error) {
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
func (b *job) kill(v events.JobView, rank int) (events.WorkerView, error) {
	for _, w := range v.Workers {
		if w.Rank == rank && w.PID > 0 && !w.State.Ended() {
			return w, syscall.Kill(w.PID, syscall.SIGKILL)
		}
	}
	return events.WorkerView{}, fmt.Errorf("%s has no worker with rank %d", b.id, rank)
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
