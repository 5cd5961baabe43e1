package jetstream

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/regroup-io/regroup/events"
)

type signals struct{ c *Conn }

// Send implements events.Signals. While disconnected the signal is lost, which is what a signal may
// be.
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

// Hear implements events.Signals.
func (p signals) Hear(ctx context.Context, subject, queue string, fn func(subject string, data []byte), ready func()) error {
	return p.c.subscribe(ctx, subject, queue, func(m *nats.Msg) { fn(m.Subject, m.Data) }, ready)
}

// Watch implements events.Signals. A disconnection too short to be seen is told all the same, as
// false then true.
func (p signals) Watch(ctx context.Context, fn func(connected bool)) error {
	told, toldEpoch, changed := p.c.state.get()
	fn(told)
	for {
		select {
		case <-changed:
		case <-p.c.state.done:
			if told {
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
		case up != told:
			fn(up)
		case up && epoch != toldEpoch:
			fn(false)
			fn(true)
		}
		told, toldEpoch = up, epoch
	}
}

// Launches implements events.Signals. What is published on a stream's subject reaches plain
// subscribers too, so an agent needs no consumer: one costs the servers up to 0.9 MB. What was
// missed is read from the stream's leader at each connect, after the subscription stands, so that
// nothing falls in between; a message may come twice, and Sequence is 0 on those heard directly.
func (p signals) Launches(ctx context.Context, stream, subject string, fn func(events.Stored)) error {
	var mu sync.Mutex // one fn at a time
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var reading sync.WaitGroup
	err := p.c.subscribe(ctx, subject, "", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		fn(events.Stored{Subject: m.Subject, Header: incoming(m.Header), Data: m.Data, Time: time.Now()})
	}, func() {
		reading.Go(func() {
			cancel(p.readLaunches(ctx, stream, subject, func(m events.Stored) {
				mu.Lock()
				defer mu.Unlock()
				fn(m)
			}))
		})
	})
	reading.Wait()
	return err
}

// launchReadings are the pauses before each reading after a connect. One is not enough: a launch
// may have passed this server before the subscription stood and be stored only after the first
// reading (its stream's leader may even have to be elected meanwhile). Readings after the first ask
// only for what is newer: one request. TestConformanceOnThreeServers/launches/reconnect shows it.
var launchReadings = []time.Duration{0, 100 * time.Millisecond, 400 * time.Millisecond, 1600 * time.Millisecond, 6400 * time.Millisecond}

// readLaunches reads what is kept at the first connect, and at each one after it what is newer than
// what was read: when a server dies, thousands of agents connect again at once, and the server
// drops all requests when 10,000 wait. A failed reading is repeated.
func (p signals) readLaunches(ctx context.Context, stream, subject string, fn func(events.Stored)) error {
	next := uint64(1)
	for {
		if p.c.state.await(ctx) != nil {
			return p.c.state.hold(ctx)
		}
		life, cancel := p.c.state.life(ctx)
		for _, pause := range launchReadings {
			if !p.c.state.pause(life, pause) {
				break
			}
			p.insistOnReading(life, stream, subject, &next, fn)
		}
		<-life.Done() // closing the connection ends its life too
		cancel()
	}
}

func (p signals) insistOnReading(ctx context.Context, stream, subject string, next *uint64, fn func(events.Stored)) {
	wait, logged := retryFirst, false
	for {
		err := p.c.eachStored(ctx, stream, subject, next, fn)
		if err == nil || ctx.Err() != nil {
			return
		}
		if !logged {
			logged = true
			p.c.log.Warn("launches cannot be read, trying again", "stream", stream, "reason", err.Error())
		}
		if !p.c.state.pause(ctx, wait) {
			return
		}
		wait = min(2*wait, retryLast)
	}
}

// eachStored reads every message kept on subject from position next on, one request each, from the
// leader.
func (c *Conn) eachStored(ctx context.Context, stream, subject string, next *uint64, fn func(events.Stored)) error {
	for {
		m, err := c.get(ctx, stream, getRequest{Sequence: *next, NextFor: subject})
		if errors.Is(err, events.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		m.Header = incoming(m.Header)
		fn(m)
		*next = m.Sequence + 1
	}
}
