package controller

import (
	"cmp"
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/wait"
)

// Options describes a service to its controller.
type Options[S any] struct {
	Service   string // name in subjects, sources and spans; also the queue group of its requests
	Machine   Machine[S]
	Bucket    string
	Ports     broker.Ports
	Consumers []broker.Consumer
	Requests  []Request
	Signals   []Subscription

	// Route returns the entities that an input concerns, several if it fans out, none to ignore it.
	// known lists the entities that have a document, sorted; state returns what this replica knows
	// of one and must not be modified.
	Route func(in events.Input, known func() []string, state func(entity string) (S, bool)) []string

	// Others returns what a machine may know of the other entities, as Input.Others. The arguments
	// are as in Route. May be nil.
	Others func(entity string, known func() []string, state func(entity string) (S, bool)) any

	// Reconcile compares this service's documents with the records of other services and emits
	// missed inputs, with an empty ID. It is called at the start and every 10 s. May be nil.
	Reconcile func(ctx context.Context, emit Emit) error

	// Tasks run while the host runs, for state that is not stored. An error ends the host.
	Tasks []Task

	// Watchers see what the host sees of its bucket: one watch serves all of them, because the
	// broker sends every document to each watch.
	Watchers []Watcher

	// Complete adds to a fact, just before it is published, the parts that its document does not
	// hold, for instance because they are in the record of another service. NotFound means that
	// they are gone for good: the fact is then not published. May be nil.
	Complete func(ctx context.Context, b events.Body) (events.Body, error)

	// Memory makes documents again that are damaged. Zero = they stay as they are.
	Memory Memory[S]

	// Reject returns the fact that tells a client why its command was refused: because it is
	// malformed (the event then has what could be decoded) or by the machine. Without it the
	// refusal is only observed.
	Reject func(e events.Event, why error) (events.Fact, bool)

	Observe func(Observation) // may be called by several goroutines; may be nil

	// The remaining fields are the environment, by default a process; the simulation sets its own.

	Now    func() time.Time
	NewID  func() string                                               // nonces
	Sleep  func(ctx context.Context, d time.Duration) bool             // waits after conflicts
	Random func(below time.Duration) time.Duration                     // how long
	Limit  func(context.Context) (context.Context, context.CancelFunc) // on the processing of one entity
}

func (o Options[S]) withDefaults() Options[S] {
	if o.Observe == nil {
		o.Observe = func(Observation) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = rand.Text
	}
	if o.Sleep == nil {
		o.Sleep = wait.Sleep
	}
	if o.Random == nil {
		o.Random = mathrand.N[time.Duration]
	}
	if o.Limit == nil {
		o.Limit = func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, processLimit)
		}
	}
	return o
}

// Emit passes an input to the host. It blocks while the host is busy and gives up when ctx ends.
type Emit func(in events.Input)

// Task runs for as long as its host, and emits inputs.
type Task func(ctx context.Context, emit Emit) error

// Watcher is called at the start of the watch of the bucket. It returns what is called with each
// document that was stored, or nil for one that was removed, after the core has received it; and
// what is called once all documents have been listed, and at the end of the watch, which may be
// nil.
type Watcher func(emit Emit) (changed func(key string, value []byte), listed, ended func())

// Request is a verb that the service answers on events.RequestSubject(service, verb).
type Request struct {
	Verb   string
	Decode func([]byte) (events.Body, error)
	Direct bool // also on events.ReplicaSubject, for agents to which a launch of this replica names it
}

// Subscription is a kind of signal that every replica receives, or with a queue group one of them.
type Subscription struct {
	Subject string
	Queue   string
	Decode  func([]byte) (events.Body, error)
}

// As returns a Decode function for a body type.
func As[B events.Body](data []byte) (events.Body, error) { return bodies.Decode[B](data) }

// expiring is a request that is void after a time by the clock of the broker; zero = never.
type expiring interface{ Expiry() time.Time }

// decodeRequest decodes a request and checks that it has not expired: it may have waited in a
// socket while this process was stopped.
func (c *Core[S]) decodeRequest(ctx context.Context, r Request, data []byte) (events.Body, error) {
	body, err := r.Decode(data)
	if err != nil {
		return nil, err
	}
	if x, ok := body.(expiring); ok {
		if late, err := c.expired(ctx, x.Expiry()); late || err != nil {
			return nil, cmp.Or(err, errLate)
		}
	}
	return body, nil
}

// Observation is worth a log line or a span. One of Fact, Refusal, Err, Repaired and Spans is set.
type Observation struct {
	Service string
	Entity  string
	Trace   string        // traceparent of the input that it is about; empty = there is none, or it is unknown
	Fact    *events.Event // stored, and published or in the outbox
	Refusal error         // a refusal whose reason differs from the last one for this entity
	Err     error         // an operation failed and is retried, or a message was dropped
	Spans   []events.Span // to be exported
	// A sentence: what was wrong with the document, and how it was made again.
	Repaired string
}

// failed reports an error about an entity, unless it is nil. trace is that of the input.
func (o Options[S]) failed(entity, trace string, err error) {
	if err != nil {
		o.Observe(Observation{Service: o.Service, Entity: entity, Trace: trace, Err: err})
	}
}

// traceOfAny returns the trace of the first input that has one.
func traceOfAny(inputs []events.Input) string {
	for _, in := range inputs {
		if in.Trace != "" {
			return in.Trace
		}
	}
	return ""
}

// observe reports the result of inputs of an entity.
func (c *Core[S]) observe(entity string, inputs []events.Input, out Result) {
	report := func(o Observation) {
		o.Service, o.Entity = c.o.Service, entity
		c.o.Observe(o)
	}
	for i := range out.Facts {
		report(Observation{Fact: &out.Facts[i], Trace: out.Facts[i].Trace})
	}
	if len(out.Spans) > 0 {
		report(Observation{Spans: out.Spans})
	}
	c.o.failed(entity, traceOfAny(inputs), out.Unpublished)
	for i, r := range out.Inputs {
		if r.Refusal != nil && c.refusals[entity] != r.Refusal.Error() {
			c.refusals[entity] = r.Refusal.Error()
			report(Observation{Refusal: r.Refusal, Trace: inputs[i].Trace})
		}
	}
	if _, ok := c.processor.State(entity); !ok {
		delete(c.refusals, entity)
	}
}

// Times and limits of every controller.
const (
	ReconcileEvery  = 10 * time.Second
	republishAfter  = time.Second            // an outbox that waits for longer is published by any replica that sees it
	decodeAfter     = 2 * time.Second        // a long document that another replica has written is decoded for its timers
	retryAfter      = time.Second            // after an error of the bucket
	minTickInterval = 100 * time.Millisecond // between two ticks of one entity
	maxDeliveries   = 8                      // deliveries of an input that fails by itself

	inboxSize    = 8192
	batchSize    = 4096
	decodeAtOnce = 32 << 10 // bytes of a document
	longProcess  = 5 * time.Millisecond
	longRest     = 20 * time.Millisecond
	processLimit = 5 * time.Second // a bucket that does not answer must not block the other entities for ever
	newerAfter   = 5 * time.Second // time for a replica of a newer version to receive what this one cannot read
)

// errUnrouted settles an input that concerns no entity.
var errUnrouted = errcode.Errorf(errcode.NotFound, "concerns nothing that is known here")
