package gateway

// LimitStreams sets the number of streams for a test, until the result is called.
func (g *Gateway) LimitStreams(n int) (reset func()) {
	before := g.streams
	g.streams = make(chan struct{}, n)
	return func() { g.streams = before }
}
