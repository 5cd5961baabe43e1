package gateway

import "github.com/prometheus/client_golang/prometheus"

// LimitStreams leaves n places for streams for a test, until the result is called.
func (g *Gateway) LimitStreams(n int) (reset func()) {
	taken := maxStreams - n
	g.streams.mu.Lock()
	defer g.streams.mu.Unlock()
	g.streams.all += taken
	return func() {
		g.streams.mu.Lock()
		defer g.streams.mu.Unlock()
		g.streams.all -= taken
	}
}

// Registry returns what /metrics reads.
func (g *Gateway) Registry() *prometheus.Registry { return g.metrics.registry }
