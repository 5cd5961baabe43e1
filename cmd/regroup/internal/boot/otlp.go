package boot

import (
	"cmp"
	"os"
	"slices"
	"strings"

	"github.com/regroup-io/regroup/events/errcode"
)

// export says how a signal (traces, metrics or logs) is exported by OTLP.
type export struct {
	on   bool
	grpc bool // else over HTTP, in protobuf
}

// exportOf reads the variables of OpenTelemetry for a signal: it is exported if there is an
// endpoint for it, or for all, and OTEL_<SIGNAL>_EXPORTER, a list, has otlp or is not set. Other
// exporters in it are for programs that have them. The exporters here read the other variables.
// https://opentelemetry.io/docs/specs/otel/protocol/exporter/
func exportOf(signal string) (export, error) {
	signal = strings.ToUpper(signal)
	own := func(name string) string {
		return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_"+name), os.Getenv("OTEL_EXPORTER_OTLP_"+name))
	}
	with := strings.Split(cmp.Or(os.Getenv("OTEL_"+signal+"_EXPORTER"), "otlp"), ",")
	if own("ENDPOINT") == "" || !slices.Contains(with, "otlp") {
		return export{}, nil
	}
	switch protocol := own("PROTOCOL"); protocol {
	case "", "http/protobuf":
		return export{on: true}, nil
	case "grpc":
		return export{on: true, grpc: true}, nil
	default:
		return export{}, errcode.Errorf(errcode.Invalid, "OTEL_EXPORTER_OTLP_PROTOCOL is %q for %s: there are http/protobuf and grpc", protocol, strings.ToLower(signal))
	}
}
