package jetstream

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events"
)

// Retries of a publish without a responder (a leader has just moved). nats.go's own 2 x 250 ms
// would make every publish to an absent stream slow.
const (
	publishRetries = 2
	publishWait    = 50 * time.Millisecond
)

type logPort struct{ c *Conn }

// Publish implements events.Log.
func (p logPort) Publish(ctx context.Context, m events.Message) (uint64, error) {
	return p.c.store(ctx, "publish "+m.Subject, message(ctx, m))
}

// message converts a message to the form that is published.
func message(ctx context.Context, m events.Message) *nats.Msg {
	msg := &nats.Msg{Subject: m.Subject, Header: outgoing(ctx, m.Header), Data: m.Data}
	if m.ID != "" {
		msg.Header[js.MsgIDHeader] = []string{m.ID}
	}
	if m.TTL > 0 {
		msg.Header[headerTTL] = []string{m.TTL.String()}
	}
	return msg
}

// store publishes to a stream and returns the position.
func (c *Conn) store(ctx context.Context, what string, m *nats.Msg) (uint64, error) {
	var seq uint64
	err := c.attempt(ctx, what, m.Subject, requestLimit, func(ctx context.Context) error {
		ack, err := c.js.PublishMsg(ctx, m, js.WithRetryAttempts(publishRetries), js.WithRetryWait(publishWait))
		if err == nil {
			seq = ack.Sequence
		}
		return err
	})
	return seq, err
}

// Last implements events.Log.
func (p logPort) Last(ctx context.Context, stream, subject string) (events.Stored, error) {
	m, err := p.c.get(ctx, stream, getRequest{LastFor: subject})
	if err != nil {
		return events.Stored{}, err
	}
	m.Header = incoming(m.Header)
	return m, nil
}

// Follow implements events.Log.
func (p logPort) Follow(ctx context.Context, f events.Follow, fn func(events.Stored) error, caughtUp func()) error {
	r := reading{stream: f.Stream, subjects: f.Subjects, next: 1, lasts: f.Start == events.FromLast}
	if f.Start == events.FromSequence {
		r.next = max(f.Sequence, 1)
	}
	placed, caughtUpCalled := f.Start != events.FromNew, false
	var handler error
	return p.c.repeat(ctx, "follow "+f.Stream, func(ctx context.Context) error {
		info, err := p.c.streamInfo(ctx, f.Stream)
		if err != nil {
			return err
		}
		switch {
		case !placed:
			r.next, placed = info.State.LastSeq+1, true
		case !r.created.IsZero() && !r.created.Equal(info.Created):
			// Another stream of this name: its positions are unrelated.
			r.next = 1
		}
		r.created = info.Created
		err = p.c.read(ctx, r, func(m events.Stored) error {
			if m.Sequence < r.next {
				return nil // a list that restarts after an interruption
			}
			r.next = m.Sequence + 1
			handler = fn(m)
			return handler
		}, func() error {
			r.lasts = false
			if !caughtUpCalled && caughtUp != nil {
				caughtUp()
			}
			caughtUpCalled = true
			return nil
		})
		if handler != nil {
			return final{handler}
		}
		return err
	})
}

// final is an error that ends repeat.
type final struct{ error }

// Pauses between attempts of repeat.
const (
	retryFirst = 50 * time.Millisecond
	retryLast  = time.Second
	retryCalm  = 5 * time.Second // an attempt that lasted this long counts as successful
)

// repeat runs do until ctx ends, the connection is closed, or do fails permanently. The context of
// do ends with ctx or with the present connection. Errors are logged when they change.
func (c *Conn) repeat(ctx context.Context, what string, do func(ctx context.Context) error) error {
	wait, logged := retryFirst, ""
	for {
		if c.state.await(ctx) != nil {
			return c.state.hold(ctx)
		}
		began := time.Now()
		inner, cancel := c.state.connectionContext(ctx)
		err := do(inner)
		broken := inner.Err() != nil
		cancel()
		var end final
		switch code := events.CodeOf(err); {
		case errors.As(err, &end):
			return end.error
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case broken:
			wait = retryFirst // the disconnection was pause enough
		case code == events.Invalid || code == events.TooLarge:
			return err
		case time.Since(began) > retryCalm:
			wait, logged = retryFirst, ""
			fallthrough
		default:
			if err != nil && err.Error() != logged {
				logged = err.Error()
				c.log.Warn("reading is interrupted, beginning again", "what", what, "reason", logged)
			}
		}
		if !c.state.pause(ctx, wait) {
			return c.state.hold(ctx)
		}
		wait = min(2*wait, retryLast)
	}
}

// streamInfo asks the stream's leader.
func (c *Conn) streamInfo(ctx context.Context, stream string, opts ...js.StreamInfoOpt) (*js.StreamInfo, error) {
	var info *js.StreamInfo
	err := c.attempt(ctx, "look at stream "+stream, js.DefaultAPIPrefix+"STREAM.INFO."+stream, requestLimit, func(ctx context.Context) error {
		s, err := c.js.Stream(ctx, stream)
		switch {
		case err != nil:
		case len(opts) > 0:
			info, err = s.Info(ctx, opts...)
		default:
			info = s.CachedInfo()
		}
		return err
	})
	return info, err
}
