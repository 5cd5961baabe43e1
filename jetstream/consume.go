package jetstream

import (
	"context"
	"errors"
	"sync"
	"time"

	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/tracing"
)

const (
	// consumeAhead limits the messages fetched ahead: their AckWait runs too.
	consumeAhead = 32
	// ackPending limits the unsettled messages of all processes together; it must exceed what
	// several replicas handle at once.
	ackPending = 4096
	handBack   = 250 * time.Millisecond
)

// Consume implements broker.Log.
func (p logPort) Consume(ctx context.Context, k broker.Consumer, handle func(broker.Delivery)) error {
	k = k.WithDefaults()
	w := &consuming{c: p.c, k: k, handle: handle, slots: make(chan struct{}, k.Parallel), ctx: ctx}
	defer w.running.Wait()
	return p.c.repeat(ctx, "consume "+k.Stream+" as "+k.Durable, w.run)
}

// consuming is the state of one Consume.
type consuming struct {
	c       *Conn
	k       broker.Consumer
	handle  func(broker.Delivery)
	slots   chan struct{}
	running sync.WaitGroup
	ctx     context.Context //nolint:containedctx // of the whole Consume; outlives single connections
}

func (w *consuming) run(ctx context.Context) error {
	consumer, err := w.bind(ctx)
	if err != nil {
		return err
	}
	it, err := messages(consumer, min(w.k.Parallel, consumeAhead))
	if err != nil {
		return coded("consume "+w.k.Stream, err)
	}
	defer w.handBack(it)
	for {
		select {
		case w.slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		m, err := it.Next(js.NextContext(ctx))
		if err != nil {
			<-w.slots
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return coded("wait for messages", err)
		}
		w.running.Go(func() {
			defer func() { <-w.slots }()
			w.deliver(m)
		})
	}
}

// bind creates the durable consumer, or updates the settings and subjects of an existing one.
func (w *consuming) bind(ctx context.Context) (js.Consumer, error) {
	cfg := js.ConsumerConfig{
		Durable:        w.k.Durable,
		FilterSubjects: w.k.Subjects,
		DeliverPolicy:  js.DeliverAllPolicy,
		AckPolicy:      js.AckExplicitPolicy,
		AckWait:        w.k.AckWait,
		MaxDeliver:     -1,
		MaxAckPending:  max(ackPending, 4*w.k.Parallel),
	}
	return request(ctx, w.c, "consume "+w.k.Stream+" as "+w.k.Durable, consumerSubject+w.k.Stream, func(ctx context.Context) (js.Consumer, error) {
		return w.c.js.CreateOrUpdateConsumer(ctx, w.k.Stream, cfg)
	})
}

// traced returns a context for log lines about a message.
func traced(m js.Msg) context.Context {
	return tracing.NewContext(context.Background(), broker.HeaderValue(m.Headers(), events.HeaderTrace))
}

// deliver passes one message to the handler and keeps its slot until it is settled, or until the
// server delivers it again.
func (w *consuming) deliver(m js.Msg) {
	meta, err := m.Metadata()
	if err != nil {
		w.c.log.ErrorContext(traced(m), "a message without position was consumed", "subject", m.Subject(), "reason", err.Error())
		return
	}
	overdue := time.NewTimer(w.k.AckWait)
	defer overdue.Stop()
	settled := make(chan struct{})
	var once sync.Once
	settle := func(send func() error) {
		once.Do(func() {
			defer close(settled)
			// Lost with the connection: the message is redelivered after AckWait.
			if err := send(); err != nil {
				w.c.log.DebugContext(traced(m), "a message could not be settled", "subject", m.Subject(), "reason", err.Error())
			}
		})
	}
	w.handle(broker.Delivery{
		Stored:  stored(m, meta),
		Attempt: int(meta.NumDelivered),
		Ack:     func() { settle(m.Ack) },
		Retry: func(after time.Duration) {
			settle(func() error {
				if after <= 0 {
					return m.Nak()
				}
				return m.NakWithDelay(after)
			})
		},
		Drop: func(reason string) { settle(func() error { return m.TermWithReason(oneLine(reason)) }) },
	})
	select {
	case <-settled:
	case <-overdue.C:
	case <-w.ctx.Done():
	}
}

// handBack ends an iterator and returns its messages: other replicas need not wait for AckWait.
func (w *consuming) handBack(it js.MessagesContext) {
	if !w.c.nc.IsConnected() {
		it.Stop()
		return
	}
	it.Drain()
	limit, cancel := context.WithTimeout(context.Background(), handBack)
	defer cancel()
	for {
		m, err := it.Next(js.NextContext(limit))
		switch {
		case err == nil:
			_ = m.Nak() // as above: otherwise AckWait redelivers it
		case errors.Is(err, js.ErrMsgIteratorClosed), limit.Err() != nil:
			it.Stop()
			return
		}
	}
}
