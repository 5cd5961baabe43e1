// Command traces reads the traces of a job back from a real Jaeger.
//
//	make e2e SUITE=traces
//
// A broker, services, a gateway, an agent and a client send their spans by OTLP, and so do the
// three workers of a job, for spans of their own. Two workers are killed. Then the trace of the
// client, that of the job's start and that of each incident must be a tree with one root, and tell
// what has happened.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/program"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/events/tracing"
)

func main() {
	path := flag.String("jaeger", ".tools/jaeger-v1.76.0/jaeger", "the program")
	python := flag.String("python", ".tools/opentelemetry/bin/python", "a Python that has OpenTelemetry")
	program.Main("traces", func(ctx context.Context) error { return run(ctx, *path, *python) })
}

func run(ctx context.Context, path, python string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for _, p := range []*string{&path, &python} {
		if *p, err = filepath.Abs(*p); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "regroup-traces-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := cluster.Build(dir, false, "cmd/regroup", "e2e/traces/worker"); err != nil {
		return err
	}
	p := &cluster.Processes{Dir: dir}
	defer p.Stop(20 * time.Second)
	j, err := startJaeger(ctx, p, path)
	if err != nil {
		return err
	}
	b, err := startCluster(ctx, dir, j)
	if err != nil {
		return err
	}
	defer b.Close()
	s, err := play(ctx, b, j, filepath.Join(dir, "worker"), python)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, b.Processes.Log("node-1", 4000))
	}
	return s.check(ctx, j)
}

// story is what has happened to the job.
type story struct {
	job     ident.JobID
	client  string // trace
	script  ident.JobID
	killed  []tables.WorkerView
	crashes []events.IncidentClosed // the incidents that the kills have begun
	all     []events.IncidentClosed
}

// play submits the job, kills the worker of rank 1, kills the one that has replaced it, stops the
// job, runs the program of the document, and ends the cluster.
func play(ctx context.Context, b *job, j *jaeger, worker, python string) (*story, error) {
	s := &story{}
	if err := asClient(ctx, j, func(traceparent string) error {
		s.client = tracing.TraceID(traceparent)
		return b.submit(ctx, worker, traceparent)
	}); err != nil {
		return nil, err
	}
	s.job = b.id
	var last ident.Generation
	slot := ident.Slot(-1)
	for range 2 {
		v, err := b.trains(ctx, last)
		if err != nil {
			return nil, err
		}
		rank := ident.Rank(1)
		for _, w := range v.Workers {
			if w.Place.Slot == slot {
				rank = w.Rank // the replacement
			}
		}
		w, err := b.kill(v, rank)
		if err != nil {
			return nil, err
		}
		s.killed = append(s.killed, w)
		last, slot = v.Generation, w.Place.Slot
		fmt.Printf("%s: killed rank %d, process %d, attempt %d, in %s\n", b.id, w.Rank, w.PID, w.Attempt, v.Generation)
	}
	if _, err := b.trains(ctx, last); err != nil {
		return nil, err
	}
	v, err := b.stop(ctx)
	if err != nil {
		return nil, err
	}
	s.all = v.Incidents
	for _, i := range v.Incidents {
		if i.Cause.Kind == events.CauseWorkerFailed {
			s.crashes = append(s.crashes, i)
		}
	}
	if len(s.crashes) != 2 {
		return nil, fmt.Errorf("%d of %d incidents are of workers that failed, not 2", len(s.crashes), len(v.Incidents))
	}
	if s.script, err = b.script(ctx, python); err != nil {
		return nil, err
	}
	return s, b.end(ctx)
}

// asClient calls f in a span of a client.
func asClient(ctx context.Context, j *jaeger, f func(traceparent string) error) error {
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(j.otlp+"/v1/traces"))
	if err != nil {
		return err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "client"))))
	in, span := provider.Tracer("traces").Start(ctx, "submit")
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(in, carrier)
	err = f(carrier["traceparent"])
	span.End()
	return errors.Join(err, provider.Shutdown(ctx))
}
