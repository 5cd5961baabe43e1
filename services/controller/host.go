package controller

import (
	"context"
	"crypto/rand"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/events"
)

// Options are what a service hands to its Host.
type Options[S any] struct {
	Service   string // name in subjects, sources and spans; also the queue of its requests
	Machine   Machine[S]
	Bucket    string
	Ports     events.Ports
	Consumers []events.Consumer
	Requests  []Request
	Signals   []Subscription

	// Route names the entities that an input concerns, several if it fans out, none to let it pass. known lists the
	// entities that have a document, sorted; state is what this replica knows of one and must not be modified.
	Route func(in events.Input, known func() []string, state func(entity string) (S, bool)) []string

	// Reconcile compares this judge's documents with what other judges show and emits what was missed, with an empty ID.
	// It is called at the start and every 10 s. May be nil.
	Reconcile func(ctx context.Context, emit Emit) error

	// Beside run while the host runs, for a service's own soft state. An error ends the host.
	Beside []func(ctx context.Context, emit Emit) error

	// Complete adds to a fact, just before it is published, what its document does not hold, for instance because another judge's record
	// has it. It returns NotFound when that is gone for good: then the fact is not told. May be nil.
	Complete func(ctx context.Context, b events.Body) (events.Body, error)

	// Reject makes the fact that tells a client why its command was refused: malformed (then the event is as much as
	// could be read) or by the machine. Without it the refusal is only observed.
	Reject func(e events.Event, why error) (events.Fact, bool)

	Observe func(Observation) // may be called by several goroutines; may be nil
	Now     func() time.Time  // nil = time.Now
	NewID   func() string     // nonces; nil = random
}

// Emit hands an input to the host, which routes it. It waits while the host is busy and gives up when ctx ends.
type Emit func(in events.Input)

// Request is a verb that the service answers on events.RequestSubject(service, verb).
type Request struct {
	Verb   string
	Decode func([]byte) (events.Body, error)
	Direct bool // also on events.ReplicaSubject, for those whom a launch of this replica names it
}

// Subscription is a kind of signal that the service listens to: every replica all of them, or with a queue each one once.
type Subscription struct {
	Subject string
	Queue   string
	Decode  func([]byte) (events.Body, error)
}

// As makes a Decode function for a body type.
func As[B events.Body](data []byte) (events.Body, error) { return events.DecodeBody[B](data) }

// Host runs a machine on the ports.
type Host[S any] struct {
	o      Options[S]
	turner *Processor[S]
	inbox  chan arrival
	listed chan struct{} // closed when the bucket was listed: Route knows every entity from then on
	wakes  wakes
	rest   time.Time         // inputs gather until then
	said   map[string]string // newest refusal per entity, so that only a changed one is observed

	replica string // names it in launches and subjects
}

const (
	inboxSize  = 8192
	batchSize  = 4096
	readAtOnce = 32 << 10 // bytes of a document
	longTurn   = 5 * time.Millisecond
	longRest   = 20 * time.Millisecond
	turnLimit  = 5 * time.Second // a store that does not answer must not hold the others' turns for ever
)

// New checks the options. It does no I/O.
func New[S any](o Options[S]) (*Host[S], error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = rand.Text
	}
	if o.Observe == nil {
		o.Observe = func(Observation) {}
	}
	if o.Route == nil {
		return nil, events.Errorf(events.Invalid, "controller %s: no Route", o.Service)
	}
	if o.Ports.Calls == nil {
		return nil, events.Errorf(events.Invalid, "controller %s: a port is missing", o.Service)
	}
	replica := o.NewID()
	t, err := NewProcessor(ProcessorOptions[S]{Service: o.Service, Machine: o.Machine, Bucket: o.Bucket, Ports: o.Ports, NewID: o.NewID, Replica: replica, Complete: o.Complete})
	if err != nil {
		return nil, err
	}
	return &Host[S]{
		o: o, turner: t, replica: replica,
		inbox:  make(chan arrival, inboxSize),
		listed: make(chan struct{}),
		wakes:  wakes{at: map[wakeKey]time.Time{}},
		said:   map[string]string{},
	}, nil
}

// Run hosts the machine until ctx ends, which is no error, or a port fails for good. It may be called once. When it
// returns, every goroutine has ended; inputs that were not settled are delivered again, to this or another replica.
func (h *Host[S]) Run(ctx context.Context) error {
	g, inner := errgroup.WithContext(ctx)
	start := func(what string, fn func(context.Context) error) {
		g.Go(func() error {
			err := fn(inner)
			switch {
			case inner.Err() != nil:
				return nil //nolint:nilerr // the end of the host ends everything in it
			case err == nil:
				return events.Errorf(events.Unavailable, "%s: %s ended by itself", h.o.Service, what)
			}
			return events.Errorf(events.CodeOf(err), "%s: %s: %w", h.o.Service, what, err)
		})
	}
	later := func(what string, fn func(context.Context) error) {
		start(what, func(ctx context.Context) error {
			select {
			case <-h.listed:
				return fn(ctx)
			case <-ctx.Done():
				return nil
			}
		})
	}
	start("turns", h.own)
	start("watch of bucket "+h.o.Bucket, h.watch)
	later("requests of "+events.VerbAlive, h.alive)
	for _, c := range h.o.Consumers {
		later("consumer "+c.Durable, func(ctx context.Context) error {
			return h.o.Ports.Log.Consume(ctx, c, func(d events.Delivery) { h.delivered(ctx, c, d) })
		})
	}
	for _, r := range h.o.Requests {
		serve := func(subject, queue string) {
			later("requests on "+subject, func(ctx context.Context) error {
				return h.o.Ports.Calls.Serve(ctx, subject, queue, func(call context.Context, data []byte) ([]byte, error) { return h.asked(ctx, call, r, data) })
			})
		}
		serve(events.RequestSubject(h.o.Service, r.Verb), h.o.Service)
		if r.Direct {
			serve(events.ReplicaSubject(h.o.Service, r.Verb, h.replica), "")
		}
	}
	for _, s := range h.o.Signals {
		later("signals "+s.Subject, func(ctx context.Context) error {
			return h.o.Ports.Signals.Hear(ctx, s.Subject, s.Queue, func(_ string, data []byte) { h.heard(s, data) }, nil)
		})
	}
	if h.o.Reconcile != nil {
		later("reconcile", h.reconcile)
	}
	for _, fn := range h.o.Beside {
		later("own task", func(ctx context.Context) error {
			return fn(ctx, func(in events.Input) { h.put(ctx, arrival{input: in}) })
		})
	}
	return g.Wait()
}

// alive answers that a replica is there, and knows its documents.
func (h *Host[S]) alive(ctx context.Context) error {
	answer, err := events.EncodeBody(events.Alive{Service: h.o.Service, Replica: h.replica})
	if err != nil {
		return err
	}
	return h.o.Ports.Calls.Serve(ctx, events.RequestSubject(h.o.Service, events.VerbAlive), h.o.Service, func(context.Context, []byte) ([]byte, error) { return answer, nil })
}

// watch feeds the cache, this replica's own saves included.
func (h *Host[S]) watch(ctx context.Context) error {
	return h.o.Ports.Buckets.Bucket(h.o.Bucket).Watch(ctx, func(key string, value []byte, revision uint64) {
		h.put(ctx, arrival{change: &change{key, value, revision}})
	}, func() { h.put(ctx, arrival{listed: true}) })
}

// reconcile asks the service to compare, at once and every 10 s.
func (h *Host[S]) reconcile(ctx context.Context) error {
	emit := func(in events.Input) { h.put(ctx, arrival{input: in}) }
	once := func(time.Time) error {
		if err := h.o.Reconcile(ctx, emit); err != nil && ctx.Err() == nil {
			h.o.Observe(Observation{Service: h.o.Service, Err: err})
		}
		return nil
	}
	_ = once(time.Time{})
	return Every(ctx, ReconcileEvery, once)
}
