package jetstream

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
)

type signals struct{ c *Conn }

// Send implements broker.Signals. While disconnected the signal is lost, as a signal may be.
func (p signals) Send(subject string, data []byte) error {
	err := p.c.nc.Publish(subject, data)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrBadSubject):
		return coded("signal "+subject, err)
	}
	return nil
}

// Hear implements broker.Signals.
func (p signals) Hear(ctx context.Context, subject, queue string, fn func(subject string, data []byte), ready func()) error {
	return p.c.subscribe(ctx, subject, queue, func(m *nats.Msg) { fn(m.Subject, m.Data) }, ready)
}

// Watch implements broker.Signals. It reports unobserved disconnections too, as false then true.
func (p signals) Watch(ctx context.Context, fn func(connected bool)) error {
	last, lastEpoch, changed := p.c.state.get()
	fn(last)
	for {
		select {
		case <-changed:
		case <-p.c.state.done:
			if last {
				fn(false)
			}
			return errClosed()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		var up bool
		var epoch uint64
		up, epoch, changed = p.c.state.get()
		switch {
		case up != last:
			fn(up)
		case up && epoch != lastEpoch:
			fn(false)
			fn(true)
		}
		last, lastEpoch = up, epoch
	}
}

// Launches implements broker.Signals. Messages published on a stream's subject reach plain
// subscribers too, so an agent needs no consumer: one costs the servers up to 0.9 MB. Missed
// messages are read from the stream's leader at each connect, after the subscription is
// established, so that no gap remains; a message may arrive twice, and Sequence is 0 on those
// received directly.
func (p signals) Launches(ctx context.Context, stream, subject string, fn func(broker.Stored)) error {
	var mu sync.Mutex // one fn at a time
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var reading sync.WaitGroup
	err := p.c.subscribe(ctx, subject, "", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		fn(broker.Stored{Subject: m.Subject, Header: incoming(m.Header), Data: m.Data, Time: time.Now()})
	}, func() {
		reading.Go(func() {
			cancel(p.readLaunches(ctx, stream, subject, func(m broker.Stored) {
				mu.Lock()
				defer mu.Unlock()
				fn(m)
			}))
		})
	})
	reading.Wait()
	return err
}

// launchReadings are the pauses before each read after a connect. One read is not enough: a launch
// may have passed this server before the subscription was established and be stored only after the
// first read (its stream's leader may even have to be elected meanwhile). Later reads ask only for
// newer messages: one request. TestConformanceOnThreeServers/launches/reconnect shows it.
var launchReadings = []time.Duration{0, 100 * time.Millisecond, 400 * time.Millisecond, 1600 * time.Millisecond, 6400 * time.Millisecond}

// readLaunches reads all kept launches at the first connect, and newer ones at each later connect:
// when a server dies, thousands of agents reconnect at once, and the server drops all requests when
// 10,000 wait. A failed read is repeated, whatever the reason.
func (p signals) readLaunches(ctx context.Context, stream, subject string, fn func(broker.Stored)) error {
	next := uint64(1)
	return p.c.repeat(ctx, "read launches", func(ctx context.Context) error {
		for _, pause := range launchReadings {
			if !p.c.state.pause(ctx, pause) {
				return context.Cause(ctx)
			}
			for {
				m, err := logPort{p.c}.Next(ctx, stream, subject, next)
				if errors.Is(err, errcode.ErrNotFound) {
					break
				}
				if err != nil {
					return errcode.Errorf(errcode.Unavailable, "%w", err)
				}
				fn(m)
				next = m.Sequence + 1
			}
		}
		<-ctx.Done() // the end of the connection
		return context.Cause(ctx)
	})
}

// consumers is how the reply subject begins of a message that a consumer of a stream delivers. Who
// may create consumers decides where they deliver, so such a message is none of its subject's.
const consumers = "$JS.ACK."

// subscribe calls fn for each message on subject, in order, until ctx ends. When it returns fn is
// not running and will not be called again. ready (may be nil) is called once the server has the
// subscription; nats.go renews it after reconnects.
func (c *Conn) subscribe(ctx context.Context, subject, queue string, fn func(*nats.Msg), ready func()) error {
	var mu sync.Mutex
	over := false
	sub, err := c.nc.QueueSubscribe(subject, queue, func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if !over && !strings.HasPrefix(m.Reply, consumers) {
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
		if !c.state.pause(ctx, retryPause.First) {
			return false
		}
	}
}
