package controller

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/internal/wait"
)

// Host runs a Core on the ports: goroutines that receive, and one that steps the core.
type Host[S any] struct {
	o      Options[S]
	core   *Core[S]
	inbox  chan Item
	synced chan struct{} // closed when the core has synced
}

// New checks the options. It does no I/O.
func New[S any](o Options[S]) (*Host[S], error) {
	o = o.withDefaults()
	if o.Ports.Calls == nil {
		return nil, errcode.Errorf(errcode.Invalid, "controller %s: a port is missing", o.Service)
	}
	core, err := NewCore(o)
	if err != nil {
		return nil, err
	}
	return &Host[S]{o: o, core: core, inbox: make(chan Item, inboxSize), synced: make(chan struct{})}, nil
}

// Options returns what the host was made of.
func (h *Host[S]) Options() Options[S] { return h.o }

// Run runs the controller until ctx ends, which is no error, or a port fails for good. It may be
// called once. When it returns, every goroutine has ended; inputs that were not settled are
// delivered again, to this or another replica.
func (h *Host[S]) Run(ctx context.Context) error {
	g, inner := errgroup.WithContext(ctx)
	start := func(what string, fn func(context.Context) error) {
		g.Go(func() error {
			err := fn(inner)
			switch {
			case inner.Err() != nil:
				return nil //nolint:nilerr // the end of the host ends everything in it
			case err == nil:
				return errcode.Errorf(errcode.Unavailable, "%s: %s ended by itself", h.o.Service, what)
			}
			return errcode.Errorf(errcode.Of(err), "%s: %s: %w", h.o.Service, what, err)
		})
	}
	afterSync := func(what string, fn func(context.Context) error) {
		start(what, func(ctx context.Context) error {
			select {
			case <-h.synced:
				return fn(ctx)
			case <-ctx.Done():
				return nil
			}
		})
	}
	start("core", h.step)
	start("watch of bucket "+h.o.Bucket, h.watch)
	afterSync("requests of "+events.VerbAlive, h.alive)
	for _, c := range h.o.Consumers {
		afterSync("consumer "+c.Durable, func(ctx context.Context) error {
			return h.o.Ports.Log.Consume(ctx, c, func(d broker.Delivery) { h.deliver(ctx, c, d) })
		})
	}
	for _, r := range h.o.Requests {
		serve := func(subject, queue string) {
			afterSync("requests on "+subject, func(ctx context.Context) error {
				return h.o.Ports.Calls.Serve(ctx, subject, queue, func(call context.Context, data []byte) ([]byte, error) { return h.answer(ctx, call, r, data) })
			})
		}
		serve(events.RequestSubject(h.o.Service, r.Verb), h.o.Service)
		if r.Direct {
			serve(events.ReplicaSubject(h.o.Service, r.Verb, h.core.processor.replica), "")
		}
	}
	for _, s := range h.o.Signals {
		afterSync("signals "+s.Subject, func(ctx context.Context) error {
			return h.o.Ports.Signals.Hear(ctx, s.Subject, s.Queue, func(subject string, data []byte) { h.signal(s, subject, data) }, nil)
		})
	}
	if h.o.Reconcile != nil {
		afterSync("reconcile", h.reconcile)
	}
	for _, fn := range h.o.Tasks {
		afterSync("task", func(ctx context.Context) error {
			return fn(ctx, func(in events.Input) { h.put(ctx, InputItem(in)) })
		})
	}
	return g.Wait()
}

// step is the goroutine that owns the core.
func (h *Host[S]) step(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for synced := false; ; {
		if at := h.core.Next(); at.IsZero() {
			timer.Reset(time.Hour)
		} else {
			timer.Reset(max(0, at.Sub(h.o.Now())))
		}
		inbox := h.inbox
		if h.core.Queued() >= batchSize {
			inbox = nil // the rest waits in the channel, so that senders block
		}
		select {
		case <-ctx.Done():
			h.drain()
			return ctx.Err()
		case i := <-inbox:
			h.core.Offer(i)
			h.offerWaiting()
		case <-timer.C:
		}
		// Processing that has begun is completed: a save of unknown outcome costs the next replica.
		h.core.Step(context.WithoutCancel(ctx))
		if h.core.HasSynced() && !synced {
			synced = true
			close(h.synced)
		}
	}
}

func (h *Host[S]) offerWaiting() {
	for h.core.Queued() < batchSize {
		select {
		case i := <-h.inbox:
			h.core.Offer(i)
		default:
			return
		}
	}
}

func (h *Host[S]) drain() {
	h.core.Drain()
	for {
		select {
		case i := <-h.inbox:
			i.cancel(h.o.Service)
		default:
			return
		}
	}
}

// put passes an item to the goroutine of the core; false = the host is stopping.
func (h *Host[S]) put(ctx context.Context, i Item) bool {
	select {
	case h.inbox <- i:
		return true
	case <-ctx.Done():
		return false
	}
}

func (h *Host[S]) deliver(ctx context.Context, from broker.Consumer, d broker.Delivery) {
	if i, ok := h.core.DeliveryItem(ctx, from, d); ok && !h.put(ctx, i) {
		d.Retry(0)
	}
}

func (h *Host[S]) answer(host, call context.Context, r Request, data []byte) ([]byte, error) {
	body, err := h.core.decodeRequest(call, r, data)
	if err != nil {
		return nil, err
	}
	type result struct {
		InputResult
		err error
	}
	done := make(chan result, 1)
	item := RequestItem(events.Input{Trace: tracing.FromContext(call), Body: body}, func(r InputResult, err error) { done <- result{r, err} })
	stopping := errcode.Errorf(errcode.Unavailable, "%s is stopping: ask again", h.o.Service)
	select {
	case h.inbox <- item:
	case <-call.Done():
		return nil, context.Cause(call)
	case <-host.Done():
		return nil, stopping
	}
	select {
	case got := <-done:
		switch {
		case got.err != nil:
			return nil, got.err
		case got.Refusal != nil:
			return nil, got.Refusal
		case got.Reply == nil:
			return []byte("{}"), nil
		}
		return bodies.Encode(got.Reply)
	case <-call.Done():
		return nil, context.Cause(call)
	case <-host.Done():
		return nil, stopping
	}
}

// bound is a signal that must come on a subject which its body names.
type bound interface{ CheckSubject(subject string) error }

// signal passes a signal to the core. If the core is overloaded the signal is lost.
func (h *Host[S]) signal(s Subscription, subject string, data []byte) {
	body, err := s.Decode(data)
	if b, ok := body.(bound); ok && err == nil {
		err = b.CheckSubject(subject)
	}
	if err != nil {
		h.o.failed("", "", errcode.Errorf(errcode.Invalid, "signal on %s: %w", s.Subject, err))
		return
	}
	select {
	case h.inbox <- InputItem(events.Input{Time: h.o.Now(), Body: body}):
	default:
	}
}

// alive answers that a replica is running and has synced.
func (h *Host[S]) alive(ctx context.Context) error {
	answer, err := bodies.Encode(events.Alive{Service: h.o.Service, Replica: h.core.processor.replica})
	if err != nil {
		return err
	}
	return h.o.Ports.Calls.Serve(ctx, events.RequestSubject(h.o.Service, events.VerbAlive), h.o.Service, func(context.Context, []byte) ([]byte, error) { return answer, nil })
}

// watch passes changes of the bucket to the core and the watchers, this replica's own saves
// included.
func (h *Host[S]) watch(ctx context.Context) error {
	var changed []func(string, []byte)
	var listed []func()
	for _, w := range h.o.Watchers {
		c, l, ended := w(func(in events.Input) { h.put(ctx, InputItem(in)) })
		changed = append(changed, c)
		if l != nil {
			listed = append(listed, l)
		}
		if ended != nil {
			defer ended()
		}
	}
	return h.o.Ports.Buckets.Bucket(h.o.Bucket).Watch(ctx, func(key string, value []byte, revision uint64) {
		h.put(ctx, UpdateItem(key, value, revision))
		for _, fn := range changed {
			fn(key, value)
		}
	}, func() {
		h.put(ctx, SyncedItem())
		for _, fn := range listed {
			fn()
		}
	})
}

// reconcile calls Reconcile at once and every 10 s.
func (h *Host[S]) reconcile(ctx context.Context) error {
	emit := func(in events.Input) { h.put(ctx, InputItem(in)) }
	once := func(time.Time) error {
		if err := h.o.Reconcile(ctx, emit); ctx.Err() == nil {
			h.o.failed("", "", err)
		}
		return nil
	}
	_ = once(time.Time{})
	return wait.Every(ctx, ReconcileEvery, once)
}

// Each calls fn for every item, up to limit at once, and returns when all calls have.
func Each[T any](limit int, items []T, fn func(T)) {
	var g errgroup.Group
	g.SetLimit(limit)
	for _, item := range items {
		g.Go(func() error {
			fn(item)
			return nil
		})
	}
	_ = g.Wait() // fn returns nothing
}
