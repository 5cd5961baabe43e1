// Package waterfall draws one trace in a terminal: who did what, within what, when and for how
// long. It reads spans as OTLP carries them (opentelemetry.io/docs/specs/otlp), so that a trace can
// be looked at without a collector.
package waterfall
