// Command worker is an elastic program that has spans of its own: one for each few steps, below the
// span that the agent has for it. Where they are sent is in the environment, as for any program
// with OpenTelemetry.
package main

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/regroup-io/regroup/e2e/program"
	"github.com/regroup-io/regroup/elastic"
	"github.com/regroup-io/regroup/elastic/samples"
	"github.com/regroup-io/regroup/internal/wait"
)

func main() {
	program.Main("worker", run)
}

func run(ctx context.Context) (err error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return err
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter, sdktrace.WithBatchTimeout(50*time.Millisecond)),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "trainer"))),
	)
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, provider.Shutdown(last))
	}()
	options, err := elastic.FromEnv()
	if err != nil {
		return err
	}
	state := elastic.NewState(samples.NewSampler(1<<20, 1))
	tracer := provider.Tracer("worker")
	err = elastic.Run(ctx, options, state, func(ctx context.Context, s *elastic.Session) error {
		carrier := propagation.MapCarrier{"traceparent": s.Traceparent}
		ctx = propagation.TraceContext{}.Extract(ctx, carrier)
		for {
			if err := steps(ctx, tracer, s); err != nil {
				return err
			}
		}
	})
	if errors.Is(err, elastic.ErrUnfinished) {
		return nil
	}
	return err
}

// steps makes some steps and commits, in one span.
func steps(ctx context.Context, tracer trace.Tracer, s *elastic.Session) error {
	ctx, span := tracer.Start(ctx, "steps", trace.WithAttributes(attribute.Int("rank", s.Rank), attribute.Int64("generation", int64(s.Generation))))
	defer span.End()
	for range 4 {
		if err := s.Consume(ctx, s.Next(8)); err != nil {
			return err
		}
		if !wait.Sleep(ctx, 10*time.Millisecond) { // it stands for the work of a step
			return context.Cause(ctx)
		}
	}
	return s.Commit(ctx)
}
