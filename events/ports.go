package events

import (
	"context"
	"time"
)

// Ports are the ways in which processes talk. There are two implementations: memory (one process)
// and jetstream (NATS); both pass the suite in eventstest. All blocking methods return when ctx
// ends, with its cause.
type Ports struct {
	Log     Log
	Calls   Calls
	Signals Signals
	Buckets Buckets
	Links   Links
	Clock   Clock
}

// Stored is a message as a stream keeps it.
type Stored struct {
	Subject  string
	Header   map[string][]string
	Data     []byte
	Sequence uint64    // position in the stream, from 1
	Time     time.Time // the store's clock
}

// Log is the durable streams.
type Log interface {
	// Publish stores a message and returns its position. The same id on the same stream within the
	// broker's window stores nothing and is no error. A message over the limit is TooLarge; a full
	// or absent stream is Unavailable.
	Publish(ctx context.Context, m Message) (uint64, error)
	// PublishAll stores messages like Publish, many on their way at once, in order. It returns nil
	// when the last one is stored, and all before it unless their stream changed its leader
	// meanwhile: it is for what is made again where it is missed. With an error it is open which
	// are stored: give all of them again, their ids keep them from being stored twice.
	PublishAll(ctx context.Context, all []Message) error
	// Consume shares a durable consumer with every process that names it the same, and calls handle
	// for each message, up to Parallel at once: handle must not wait for another message. It
	// blocks. A message that is not settled within AckWait is delivered again.
	Consume(ctx context.Context, c Consumer, handle func(Delivery)) error
	// Follow calls fn for each stored message that matches, in order, beginning as asked, then for
	// new ones. It blocks, and survives reconnects without gap or repeat. caughtUp (may be nil) is
	// called once, when all that was stored at the start was seen.
	Follow(ctx context.Context, f Follow, fn func(Stored) error, caughtUp func()) error
	// Last returns the newest message on a subject, which may hold wildcards; NotFound if none.
	Last(ctx context.Context, stream, subject string) (Stored, error)
}

// Message is a message to store.
type Message struct {
	Subject string
	ID      string // de-duplication key; empty = none
	Header  map[string][]string
	Data    []byte
	TTL     time.Duration // after which it need not be kept, whole seconds; 0 = as long as its stream keeps messages
}

// Consumer describes a shared durable consumer.
type Consumer struct {
	Stream   string
	Durable  string
	Subjects []string
	AckWait  time.Duration // 0 = 2 s
	Parallel int           // unsettled messages at once; 0 = 256
}

// Delivery is one message from a consumer, to be settled exactly once.
type Delivery struct {
	Stored
	Attempt int                       // from 1
	Ack     func()                    // done
	Retry   func(after time.Duration) // again later
	Drop    func(reason string)       // never again
}

// Start says where a Follow begins.
type Start int

// Places to begin.
const (
	FromNew      Start = iota // only what comes
	FromFirst                 // all that is stored
	FromLast                  // the last stored message of each subject
	FromSequence              // Follow.Sequence
)

// Follow describes an ordered reading.
type Follow struct {
	Stream   string
	Subjects []string
	Start    Start
	Sequence uint64
}

// Clock is the clock that Stored.Time is of.
type Clock interface {
	// Now returns its time, to within the time that the question takes.
	Now(ctx context.Context) (time.Time, error)
}

// Calls is request and reply over core messaging.
type Calls interface {
	// Call asks and waits for the answer. Nobody there is Unavailable at once. A refusal comes back
	// with its code.
	Call(ctx context.Context, subject string, data []byte) ([]byte, error)
	// Serve answers a subject, sharing it with all who name the same queue (empty = alone). handle
	// runs concurrently. It blocks.
	Serve(ctx context.Context, subject, queue string, handle func(ctx context.Context, data []byte) ([]byte, error)) error
}

// Signals is publish and subscribe over core messaging: at most once.
type Signals interface {
	// Send hands a signal over and does not wait. It fails only when the message is too large or
	// the process is shut down.
	Send(subject string, data []byte) error
	// Hear calls fn for each signal in order; with a queue each signal goes to one of those who
	// share it. It blocks. ready (may be nil) is called once the subscription stands.
	Hear(ctx context.Context, subject, queue string, fn func(subject string, data []byte), ready func()) error
	// Launches calls fn with every stored message on subject: now (last one of each), as they come,
	// and after a reconnect those that came meanwhile. A message may come twice. It is the agents'
	// way to hear launches without a consumer of their own. It blocks.
	Launches(ctx context.Context, stream, subject string, fn func(Stored)) error
	// Watch calls fn with the connection's state, at once and at each change. It blocks.
	Watch(ctx context.Context, fn func(connected bool)) error
}

// Buckets opens key-value buckets.
type Buckets interface {
	Bucket(name string) Bucket
}

// Bucket is one key-value bucket with compare-and-set.
type Bucket interface {
	// Load returns the newest value and its revision; NotFound if there is none. Never stale.
	Load(ctx context.Context, key string) ([]byte, uint64, error)
	// Save stores the value if the key is still at revision (0 = absent) and returns the new
	// revision. Conflict if not. Any other error leaves it open whether the value was stored.
	Save(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	// Delete removes the key if it is still at revision.
	Delete(ctx context.Context, key string, revision uint64) error
	// Watch calls fn with every present key, then listed (may be nil), then fn with every change;
	// value nil = removed. It blocks.
	Watch(ctx context.Context, fn func(key string, value []byte, revision uint64), listed func()) error
}

// traceKey carries a W3C traceparent through a context; adapters write it to and read it from
// HeaderTrace.
type traceKey struct{}

// WithTrace returns a context in which adapters send this traceparent; one that a message already
// carries is left alone.
func WithTrace(ctx context.Context, traceparent string) context.Context {
	return context.WithValue(ctx, traceKey{}, traceparent)
}

// TraceFrom returns the traceparent of WithTrace, or "".
func TraceFrom(ctx context.Context) string {
	s, _ := ctx.Value(traceKey{}).(string)
	return s
}

// Link names one connection of a process to the brokers. The zero value is an unknown one.
type Link struct {
	Server string `json:"server,omitempty" bound:"word"` // id of the broker's life
	Client uint64 `json:"client,omitempty"`              // id of the connection there, never used again
	Count  uint64 `json:"count,omitempty"`               // how many the process had until then, this one included: orders those of one life
}

// Known tells whether the link names a connection at all.
func (l Link) Known() bool { return l.Server != "" }

// Same tells whether both name the same connection; brokers know no counts.
func (l Link) Same(m Link) bool { return l.Known() && l.Server == m.Server && l.Client == m.Client }

// After tells whether l is a newer connection of the same life of a process than m.
func (l Link) After(m Link) bool { return l.Known() && (!m.Known() || l.Count > m.Count) }

// Links is what is known of connections to the brokers.
type Links interface {
	// Own returns the connection of this process, a new one after each reconnect; the zero value
	// while there is none.
	Own() Link
	// Ends calls fn with each connection whose end the brokers see, this process's own included, in
	// no order. An end may be missed: those of a broker that dies itself always are. Whether the
	// process has died, said goodbye or reconnects cannot be told from it. ready (may be nil) is
	// called once it hears. It blocks. NotFound if there is no access to what the brokers tell of
	// connections.
	Ends(ctx context.Context, fn func(Link), ready func()) error
}

// Headers of a chunk of workers' output on the log stream. The data is the lines, each ended by a
// line feed.
const (
	HeaderLogNode       = "Regroup-Node"
	HeaderLogSlot       = "Regroup-Slot"
	HeaderLogRank       = "Regroup-Rank"       // at the time of writing; -1 = none
	HeaderLogGeneration = "Regroup-Generation" // a number; 0 = none
	HeaderLogStream     = "Regroup-Stream"     // stdout, stderr, or regroup for the agent's own words
)
