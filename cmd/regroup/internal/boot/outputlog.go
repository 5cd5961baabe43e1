package boot

import (
	"context"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"

	"github.com/regroup-io/regroup/agent/logs"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
)

// OutputLog exports what the workers of an agent write, as OTLP log records: a line each, in the
// trace and the span of its process. Workers do not wait for it: what a collector is too slow for
// is dropped there, and is still in regroup logs. The zero value exports nothing.
type OutputLog struct {
	provider *sdklog.LoggerProvider
	logger   log.Logger
}

// NewOutputLog returns one that exports if OTEL_LOGS_EXPORTER is otlp: output is exported where it
// is wanted, not to every collector of traces.
func NewOutputLog(ctx context.Context, service, instance string) (*OutputLog, error) {
	how, err := exportOf("logs")
	if err != nil || !how.on || os.Getenv("OTEL_LOGS_EXPORTER") == "" {
		return &OutputLog{}, err
	}
	var exporter sdklog.Exporter
	if how.grpc {
		exporter, err = otlploggrpc.New(ctx)
	} else {
		exporter, err = otlploghttp.New(ctx)
	}
	if err != nil {
		return nil, errcode.Errorf(errcode.Invalid, "OTEL_EXPORTER_OTLP_*: %w", err)
	}
	o := &OutputLog{provider: sdklog.NewLoggerProvider(
		sdklog.WithProcessor(sdklog.NewBatchProcessor(exporter)),
		sdklog.WithResource(resource.NewSchemaless(attribute.String("service.name", service), attribute.String("service.namespace", "regroup"), attribute.String("service.instance.id", instance))),
	)}
	o.logger = o.provider.Logger("regroup")
	return o, nil
}

// Line takes a line. The parts of one that is written anew until it ends, such as a bar of
// progress, are left out but for the last.
func (o *OutputLog) Line(l logs.Line) {
	if o.provider == nil || l.Open {
		return
	}
	var r log.Record
	r.SetTimestamp(time.Now())
	r.SetBody(attribute.StringValue(l.Text))
	r.AddAttributes(attribute.String("regroup.job.id", string(l.Job)), attribute.String("regroup.node", string(l.Place.Node)), attribute.Int("regroup.slot", int(l.Place.Slot)), attribute.String("log.iostream", l.Stream))
	if l.Rank != ident.NoRank {
		r.AddAttributes(attribute.Int("regroup.rank", int(l.Rank)), attribute.Int64("regroup.generation", int64(l.Generation)))
	}
	ctx := context.Background()
	if c := spanContext(l.Trace); c.IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, c)
	}
	o.logger.Emit(ctx, r)
}

// Close exports the last lines until ctx ends.
func (o *OutputLog) Close(ctx context.Context) error {
	if o.provider == nil {
		return nil
	}
	return o.provider.Shutdown(ctx)
}
