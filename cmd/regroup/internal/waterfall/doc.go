// Package waterfall draws one trace in a terminal: each span with its service, parent, start and
// duration. It reads spans as OTLP carries them (opentelemetry.io/docs/specs/otlp), so that a trace
// can be looked at without a collector.
package waterfall
