package jetstream

import (
	"context"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/regroup-io/regroup/events"
)

// natsHeaders is the prefix of JetStream's own headers, which are hidden from readers.
const natsHeaders = "Nats-"

// outgoing copies the header of a message and adds the trace of ctx if the message has none.
func outgoing(ctx context.Context, h map[string][]string) nats.Header {
	out := make(nats.Header, len(h)+4)
	for k, v := range h {
		out[k] = v
	}
	if trace := events.TraceFrom(ctx); trace != "" && headerValue(out, events.HeaderTrace) == "" {
		out[events.HeaderTrace] = []string{trace}
	}
	return out
}

// incoming drops JetStream's own headers.
func incoming(h nats.Header) map[string][]string {
	for k := range h {
		if strings.HasPrefix(k, natsHeaders) {
			delete(h, k)
		}
	}
	return h
}

// headerValue returns a header in any case: nats.go compares exactly, and clients in other
// languages write Traceparent.
func headerValue(h nats.Header, key string) string {
	if v := h[key]; len(v) > 0 {
		return v[0]
	}
	for k, v := range h {
		if len(v) > 0 && strings.EqualFold(k, key) {
			return v[0]
		}
	}
	return ""
}
