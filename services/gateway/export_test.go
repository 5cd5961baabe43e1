package gateway

import "github.com/prometheus/client_golang/prometheus"

// LimitStreams sets the number of streams for a test, until the result is called.
func (g *Gateway) LimitStreams(n int) (reset func()) {
	before := g.streams
	g.streams = make(chan struct{}, n)
	return func() { g.streams = before }
}

// Registry returns what /metrics reads.
func (g *Gateway) Registry() *prometheus.Registry { return g.metrics.registry }
