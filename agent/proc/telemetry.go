package proc

import (
	"net/url"
	"strings"
)

// exporter is the beginning of the variables of OpenTelemetry that say where spans are sent, such
// as OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_TRACES_ENDPOINT.
const exporter = "OTEL_EXPORTER_OTLP_"

// exports reports whether a variable configures the export of spans, so that workers of every user
// inherit it.
func exports(name string) bool { return strings.HasPrefix(name, exporter) }

// identifies reports whether a variable has what the agent proves its identity to a collector with:
// headers, a client certificate with its key, or an endpoint with a password in it. That is meant
// for the agent alone; a job gets it as a secret, if the agent allows that.
func identifies(name, value string) bool {
	rest, ok := strings.CutPrefix(name, exporter)
	if !ok {
		return false
	}
	if strings.HasSuffix(rest, "HEADERS") || strings.Contains(rest, "CLIENT_") {
		return true
	}
	if !strings.HasSuffix(rest, "ENDPOINT") {
		return false
	}
	u, err := url.Parse(value)
	return err != nil || u.User != nil
}
