package jetstream

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
)

// reading is where a consumer begins.
type reading struct {
	stream   string
	subjects []string
	lasts    bool      // begin with the last message of each subject, otherwise at next
	next     uint64    // first position wanted
	since    time.Time // or, unless it is zero, the first message of this time or later
	created  time.Time // of the stream that the positions belong to
}

const (
	readAhead     = 128              // messages requested at once
	readExpiry    = 30 * time.Second // of one request for messages
	readHeartbeat = time.Second      // a consumer that is silent for twice this counts as dead
	idleCheck     = 250 * time.Millisecond
	idleChecks    = 4                // after this many in a row the reader restarts
	forgetAfter   = 10 * time.Second // the server drops a consumer without requests for this long
)

// read creates a consumer, calls fn for each of its messages in order, and returns only with an
// error: fn's, caughtUp's, ctx's or the consumer's. caughtUp is called once, after all messages
// that the leader had stored at the start.
//
// The consumer is in the memory of one server, which may be a replica that lags: the end is
// determined by the leader's newest position, not by the consumer's pending count.
func (c *Conn) read(ctx context.Context, r reading, fn func(broker.Stored) error, caughtUp func() error) error {
	target, err := c.head(ctx, r.stream, r.subjects)
	if err != nil {
		return err
	}
	consumer, err := c.ephemeral(ctx, r)
	if err != nil {
		return err
	}
	defer c.forget(r.stream, consumer.CachedInfo().Name)
	it, err := messages(consumer, readAhead)
	if err != nil {
		return coded("read stream "+r.stream, err)
	}
	defer it.Stop()

	position, delivered, caught, idle := r.next-1, uint64(0), false, 0
	if r.lasts {
		position = 0
	}
	for {
		if !caught && position >= target {
			caught = true
			if err := caughtUp(); err != nil {
				return err
			}
		}
		m, err := c.nextMessage(ctx, it, caught)
		if errors.Is(err, errIdle) {
			// The target message may have been removed meanwhile. If not, the request for messages
			// was lost: in a cluster it can arrive before the consumer exists. The library's own
			// detection of silence restarts with each call.
			if target, err = c.head(ctx, r.stream, r.subjects); err != nil {
				return err
			}
			if idle++; idle >= idleChecks && position < target {
				return errcode.Errorf(errcode.Unavailable, "read stream %s: its consumer is silent at %d of %d", r.stream, position, target)
			}
			continue
		}
		idle = 0
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return coded("read stream "+r.stream, err)
		}
		if delivered++; meta.Sequence.Consumer != delivered {
			return errcode.Errorf(errcode.Unavailable, "read stream %s: the consumer skipped from delivery %d to %d", r.stream, delivered-1, meta.Sequence.Consumer)
		}
		position = meta.Sequence.Stream
		if err := fn(stored(m, meta)); err != nil {
			return err
		}
	}
}

var errIdle = errors.New("no message has arrived")

// nextMessage waits for a message; before the reader has caught up it returns errIdle periodically.
func (c *Conn) nextMessage(ctx context.Context, it js.MessagesContext, caught bool) (js.Msg, error) {
	inner := ctx
	if !caught {
		var cancel context.CancelFunc
		inner, cancel = context.WithTimeout(ctx, idleCheck)
		defer cancel()
	}
	m, err := it.Next(js.NextContext(inner))
	switch {
	case err == nil:
		return m, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case inner.Err() != nil:
		return nil, errIdle
	}
	return nil, coded("wait for messages", err)
}

// head returns the newest position among subjects, from the leader.
func (c *Conn) head(ctx context.Context, stream string, subjects []string) (uint64, error) {
	var newest uint64
	for _, s := range subjects {
		m, err := c.get(ctx, stream, getRequest{LastFor: s})
		if errors.Is(err, errcode.ErrNotFound) {
			continue
		}
		if err != nil {
			return 0, err
		}
		newest = max(newest, m.Sequence)
	}
	return newest, nil
}

func (c *Conn) ephemeral(ctx context.Context, r reading) (js.Consumer, error) {
	cfg := js.ConsumerConfig{
		FilterSubjects:    r.subjects,
		AckPolicy:         js.AckNonePolicy,
		DeliverPolicy:     js.DeliverByStartSequencePolicy,
		OptStartSeq:       r.next,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: forgetAfter,
	}
	switch {
	case r.lasts:
		cfg.DeliverPolicy, cfg.OptStartSeq = js.DeliverLastPerSubjectPolicy, 0
	case !r.since.IsZero():
		cfg.DeliverPolicy, cfg.OptStartSeq, cfg.OptStartTime = js.DeliverByStartTimePolicy, 0, &r.since
	}
	return request(ctx, c, "read stream "+r.stream, consumerSubject+r.stream, func(ctx context.Context) (js.Consumer, error) {
		return c.js.CreateConsumer(ctx, r.stream, cfg)
	})
}

// consumerSubject is where consumers of a stream are created.
const consumerSubject = js.DefaultAPIPrefix + "CONSUMER.CREATE."

// messages reads the messages of a consumer, so many at once.
func messages(consumer js.Consumer, atOnce int) (js.MessagesContext, error) {
	return consumer.Messages(js.PullMaxMessages(atOnce), js.PullExpiry(readExpiry), js.PullHeartbeat(readHeartbeat),
		js.WithMessagesErrOnMissingHeartbeat(true))
}

// forget removes a consumer. If that fails, or is not permitted, the server does it after
// forgetAfter.
func (c *Conn) forget(stream, consumer string) {
	if !c.nc.IsConnected() || c.nc.IsDraining() {
		return
	}
	subject := js.DefaultAPIPrefix + "CONSUMER.DELETE." + stream + "." + consumer
	if c.creds.Forbids(subject) {
		return
	}
	// The answer is ignored: nothing depends on it.
	_ = c.nc.Publish(subject, nil)
}

func stored(m js.Msg, meta *js.MsgMetadata) broker.Stored {
	return broker.Stored{
		Subject: m.Subject(), Header: incoming(m.Headers()), Data: m.Data(),
		Sequence: meta.Sequence.Stream, Time: meta.Timestamp,
	}
}

// connectionContext returns a context that ends with ctx or with the present connection.
func (s *state) connectionContext(ctx context.Context) (context.Context, context.CancelFunc) {
	_, _, changed := s.get()
	inner, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-changed:
			cancel(errcode.Errorf(errcode.Unavailable, "the connection was interrupted: %w", nats.ErrDisconnected))
		case <-inner.Done():
		}
	}()
	return inner, func() {
		cancel(nil)
		<-ended
	}
}
