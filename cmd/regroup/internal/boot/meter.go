package boot

import (
	"context"
	"maps"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
)

// Meter exports what the programs of an agent's workers report as OTLP metrics, at the interval of
// OTEL_METRIC_EXPORT_INTERVAL. A value that was not reported again since the last export is not
// repeated. The zero value exports nothing.
type Meter struct {
	provider *sdkmetric.MeterProvider

	mu     sync.Mutex
	newest map[reporter]received // since the last export
}

// received is a report with the time of its arrival.
type received struct {
	events.Progress
	at time.Time
}

type reporter struct {
	job  ident.JobID
	rank ident.Rank
}

// NewMeter returns a meter that exports if OTEL_EXPORTER_OTLP_ENDPOINT or its variant for metrics
// is set, unless OTEL_METRICS_EXPORTER is none.
func NewMeter(ctx context.Context, service, instance string) (*Meter, error) {
	how, err := exportOf("metrics")
	if err != nil || !how.on {
		return &Meter{}, err
	}
	var exporter sdkmetric.Exporter
	if how.grpc {
		exporter, err = otlpmetricgrpc.New(ctx)
	} else {
		exporter, err = otlpmetrichttp.New(ctx)
	}
	if err != nil {
		return nil, errcode.Errorf(errcode.Invalid, "OTEL_EXPORTER_OTLP_*: %w", err)
	}
	m := &Meter{newest: map[reporter]received{}}
	m.provider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter)), sdkmetric.WithResource(
		resource.NewSchemaless(attribute.String("service.name", service), attribute.String("service.namespace", "regroup"), attribute.String("service.instance.id", instance))))
	return m, m.instruments()
}

// instruments are gauges: of reported values one for all names, which programs choose freely.
func (m *Meter) instruments() error {
	meter := m.provider.Meter("regroup")
	value, err := meter.Float64ObservableGauge("regroup.reported", metric.WithDescription("Newest value that a worker's program has reported, by name."))
	if err != nil {
		return err
	}
	step, err := meter.Int64ObservableGauge("regroup.step", metric.WithDescription("Newest step of a worker."), metric.WithUnit("{step}"))
	if err != nil {
		return err
	}
	commitAge, err := meter.Float64ObservableGauge("regroup.commit.age", metric.WithDescription("Time since the newest whole commit of a job was made, as its rank 0 reports it."), metric.WithUnit("s"))
	if err != nil {
		return err
	}
	losses, err := meter.Int64ObservableGauge("regroup.losses_survived", metric.WithDescription("Workers that may be lost, whichever they are, without losing that commit."), metric.WithUnit("{worker}"))
	if err != nil {
		return err
	}
	nodeLosses, err := meter.Int64ObservableGauge("regroup.node_losses_survived", metric.WithDescription("Nodes that may be lost with all of their workers, whichever they are, without losing that commit."), metric.WithUnit("{node}"))
	if err != nil {
		return err
	}
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		for r, p := range m.newest {
			of := []attribute.KeyValue{
				attribute.String("regroup.job.id", string(r.job)), attribute.Int("regroup.rank", int(r.rank)), attribute.String("regroup.node", string(p.Place.Node)),
				attribute.Int64("regroup.generation", int64(p.Generation)),
			}
			if p.Step > 0 {
				o.ObserveInt64(step, int64(p.Step), metric.WithAttributes(of...))
			}
			if k := p.Redundancy; k != nil {
				if k.CommitAgeMS != nil {
					o.ObserveFloat64(commitAge, *k.CommitAgeMS/1000+time.Since(p.at).Seconds(), metric.WithAttributes(of...))
				}
				o.ObserveInt64(losses, int64(k.Losses), metric.WithAttributes(of...))
				o.ObserveInt64(nodeLosses, int64(k.NodeLosses), metric.WithAttributes(of...))
			}
			for name, v := range p.Metrics {
				o.ObserveFloat64(value, v, metric.WithAttributes(append(of, attribute.String("name", name))...))
			}
		}
		clear(m.newest)
		return nil
	}, value, step, commitAge, losses, nodeLosses)
	return err
}

// Report takes a report of a worker.
func (m *Meter) Report(p events.Progress) {
	if m.provider == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at := reporter{p.Job, p.Rank}
	values := maps.Clone(m.newest[at].Metrics) // a report may have some of the names
	if values == nil {
		values = map[string]float64{}
	}
	maps.Copy(values, p.Metrics)
	p.Metrics = values
	m.newest[at] = received{p, time.Now()}
}

// Close exports the last values until ctx ends.
func (m *Meter) Close(ctx context.Context) error {
	if m.provider == nil {
		return nil
	}
	return m.provider.Shutdown(ctx)
}
