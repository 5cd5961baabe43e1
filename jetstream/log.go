package jetstream

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/internal/wait"
)

// Retries of a publish without a responder (a leader has just moved). nats.go's own 2 x 250 ms
// would make every publish to an absent stream slow.
const (
	publishRetries = 2
	publishWait    = 50 * time.Millisecond
)

type logPort struct{ c *Conn }

// Publish implements broker.Log.
func (p logPort) Publish(ctx context.Context, m broker.Message) (uint64, error) {
	return p.c.store(ctx, "publish "+m.Subject, message(ctx, m))
}

func message(ctx context.Context, m broker.Message) *nats.Msg {
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
	ack, err := request(ctx, c, what, m.Subject, func(ctx context.Context) (*js.PubAck, error) {
		return c.js.PublishMsg(ctx, m, js.WithRetryAttempts(publishRetries), js.WithRetryWait(publishWait))
	})
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// Last implements broker.Log.
func (p logPort) Last(ctx context.Context, stream, subject string) (broker.Stored, error) {
	return p.c.get(ctx, stream, getRequest{LastFor: subject})
}

// Next implements broker.Log.
func (p logPort) Next(ctx context.Context, stream, subject string, from uint64) (broker.Stored, error) {
	return p.c.get(ctx, stream, getRequest{Sequence: max(from, 1), NextFor: subject})
}

// Follow implements broker.Log.
func (p logPort) Follow(ctx context.Context, f broker.Follow, fn func(broker.Stored) error, caughtUp func()) error {
	r := reading{stream: f.Stream, subjects: f.Subjects, next: 1}
	if f.Start == broker.FromSequence {
		r.next = max(f.Sequence, 1)
	}
	if f.Start == broker.FromTime {
		r.since = f.Since
	}
	placed, caughtUpCalled := f.Start != broker.FromNew, false
	var handler error
	return p.c.repeat(ctx, "follow "+f.Stream, func(ctx context.Context) error {
		info, err := p.c.streamInfo(ctx, f.Stream)
		if err != nil {
			return err
		}
		switch {
		case !placed:
			r.next, placed = info.State.LastSeq+1, true
		case info.State.LastTime.Before(r.since):
			r.next, r.since = info.State.LastSeq+1, time.Time{}
		case !r.created.IsZero() && !r.created.Equal(info.Created):
			// Another stream of this name: its positions are unrelated.
			r.next = 1
		}
		r.created = info.Created
		err = p.c.read(ctx, r, func(m broker.Stored) error {
			if m.Sequence < r.next {
				return nil // a list that restarts after an interruption
			}
			r.next, r.since = m.Sequence+1, time.Time{}
			handler = fn(m)
			return handler
		}, func() error {
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

// retryPause is the pause between attempts to read.
var retryPause = wait.Backoff{First: 50 * time.Millisecond, Max: time.Second}

// retryCalm is how long an attempt lasts that counts as successful.
const retryCalm = 5 * time.Second

// repeat runs do until ctx ends, the connection is closed, or do fails permanently. The context of
// do ends with ctx or with the present connection. An attempt that fails is no warning unless the
// next one fails too, and then one when the error changes.
func (c *Conn) repeat(ctx context.Context, what string, do func(ctx context.Context) error) error {
	retry, failures, logged := retryPause, 0, ""
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
		switch code := errcode.Of(err); {
		case errors.As(err, &end):
			return end.error
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case broken:
			retry.Reset()
			continue // the disconnection was pause enough
		case code == errcode.Invalid || code == errcode.TooLarge:
			return err
		case time.Since(began) > retryCalm:
			retry.Reset()
			failures, logged = 0, ""
			fallthrough
		default:
			switch failures++; {
			case err == nil:
			case failures == 1:
				c.log.Info("reading is interrupted, beginning again", "what", what, "reason", err.Error())
			case err.Error() != logged:
				logged = err.Error()
				c.log.Warn("reading is interrupted, beginning again", "what", what, "reason", logged)
			}
		}
		if !c.state.pause(ctx, retry.Next()) {
			return c.state.hold(ctx)
		}
	}
}

// infoSubject is where a stream's leader is asked about the stream.
func infoSubject(stream string) string { return js.DefaultAPIPrefix + "STREAM.INFO." + stream }

// streamInfo asks the stream's leader.
func (c *Conn) streamInfo(ctx context.Context, stream string, opts ...js.StreamInfoOpt) (*js.StreamInfo, error) {
	return request(ctx, c, "look at stream "+stream, infoSubject(stream), func(ctx context.Context) (*js.StreamInfo, error) {
		s, err := c.js.Stream(ctx, stream)
		if err != nil {
			return nil, err
		}
		if len(opts) == 0 {
			return s.CachedInfo(), nil
		}
		return s.Info(ctx, opts...)
	})
}

const (
	// ackEvery is the number of messages per acknowledged one. An acknowledgement costs the servers
	// as much as a message, and a stream stores the messages of one connection in order: an
	// acknowledged one implies those before it.
	ackEvery = 64
	// underWay is how many acknowledgements are awaited at once: enough to hide a replicated
	// stream's latency, few enough to keep the server's queue for the stream short.
	underWay = 4
	// manyLimit limits all of them together.
	manyLimit = 10 * time.Second
)

// PublishAll implements broker.Log. One connection keeps the order of its messages, and nothing is
// retried here: a retry could change the order.
func (p logPort) PublishAll(ctx context.Context, all []broker.Message) error {
	if len(all) == 0 {
		return nil
	}
	what := "publish " + all[0].Subject + " and others"
	return p.c.attempt(ctx, what, all[0].Subject, manyLimit, func(inner context.Context) error {
		waiting := make([]js.PubAckFuture, 0, underWay)
		for i, m := range all {
			msg := message(ctx, m)
			if (i+1)%ackEvery != 0 && i+1 != len(all) {
				if err := p.c.nc.PublishMsg(msg); err != nil {
					return err
				}
				continue
			}
			if len(waiting) == underWay {
				if err := acknowledged(inner, waiting[0]); err != nil {
					return err
				}
				waiting = append(waiting[:0], waiting[1:]...)
			}
			f, err := p.c.js.PublishMsgAsync(msg, js.WithRetryAttempts(0))
			if err != nil {
				return err
			}
			waiting = append(waiting, f)
		}
		for _, f := range waiting {
			if err := acknowledged(inner, f); err != nil {
				return err
			}
		}
		return nil
	})
}

func acknowledged(ctx context.Context, f js.PubAckFuture) error {
	select {
	case <-f.Ok():
		return nil
	case err := <-f.Err():
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// natsHeaders is the prefix of JetStream's own headers, which are hidden from readers.
const natsHeaders = "Nats-"

// outgoing copies the header of a message and adds the trace of ctx if the message has none.
func outgoing(ctx context.Context, h map[string][]string) nats.Header {
	out := make(nats.Header, len(h)+4)
	for k, v := range h {
		out[k] = v
	}
	if trace := tracing.FromContext(ctx); trace != "" && broker.HeaderValue(out, events.HeaderTrace) == "" {
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
