package jetstream

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go"
)

// subscribe calls fn for each message on subject, in order, until ctx ends. When it returns fn is
// not running and will not be called again. ready (may be nil) is called once the server has the
// subscription; nats.go renews it after reconnects.
func (c *Conn) subscribe(ctx context.Context, subject, queue string, fn func(*nats.Msg), ready func()) error {
	var mu sync.Mutex
	over := false
	sub, err := c.nc.QueueSubscribe(subject, queue, func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			fn(m)
		}
	})
	if err != nil {
		return coded("subscribe to "+subject, err)
	}
	if ready != nil && c.flushed(ctx) {
		ready()
	}
	err = c.state.hold(ctx)
	// It fails only if closing the connection has closed the subscription already.
	_ = sub.Unsubscribe()
	mu.Lock()
	defer mu.Unlock()
	over = true
	return err
}

// flushed waits until the server has processed everything sent so far.
func (c *Conn) flushed(ctx context.Context) bool {
	for {
		if c.state.await(ctx) != nil {
			return false
		}
		inner, cancel := context.WithTimeout(ctx, requestLimit)
		err := c.nc.FlushWithContext(inner)
		cancel()
		if err == nil {
			return true
		}
		if !c.state.pause(ctx, retryFirst) {
			return false
		}
	}
}
