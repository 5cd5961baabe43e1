// Package broker defines what Regroup needs of a message broker, as interfaces (ports): durable
// streams, calls, signals, key-value buckets, and what is known of connections and brokers. There
// are two implementations: memory (one process) and jetstream (NATS); both pass the suite in
// eventstest. All blocking methods return the cause of ctx when it ends.
package broker

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
)

// Ports are all interfaces to the broker.
type Ports struct {
	Log     Log
	Calls   Calls
	Signals Signals
	Buckets Buckets
	Links   Links
	Clock   Clock
	Brokers Brokers
}

// Stored is a message in a stream.
type Stored struct {
	Subject  string
	Header   map[string][]string
	Data     []byte
	Sequence uint64    // position in the stream, from 1
	Time     time.Time // the broker's clock
}

// Log provides the durable streams.
type Log interface {
	// Publish stores a message and returns its position. A repeated id on the same stream within
	// the broker's window stores nothing and is no error. A message over the limit is TooLarge; a
	// full or absent stream is Unavailable.
	Publish(ctx context.Context, m Message) (uint64, error)
	// PublishAll stores messages like Publish, in order, with many in flight at once. It returns
	// nil when the last one is stored, and all before it unless their stream changed its leader
	// meanwhile: it is for messages that are published again when missed. After an error it is
	// unknown which are stored: publish all of them again, their ids prevent duplicates.
	PublishAll(ctx context.Context, all []Message) error
	// Consume shares a durable consumer with all processes that give it the same name, and calls
	// handle for each message, up to Parallel at once: handle must not wait for another message. It
	// blocks. A message that is not settled within AckWait is delivered again.
	Consume(ctx context.Context, c Consumer, handle func(Delivery)) error
	// Follow calls fn for each matching stored message in order, beginning at Start, then for new
	// ones. It blocks, and survives reconnects without gaps or repeats. caughtUp (may be nil) is
	// called once, after all messages stored at the start.
	Follow(ctx context.Context, f Follow, fn func(Stored) error, caughtUp func()) error
	LogReader
}

// LogReader reads single messages of the durable streams.
type LogReader interface {
	// Last returns the newest message on a subject, perhaps with wildcards; NotFound without one.
	Last(ctx context.Context, stream, subject string) (Stored, error)
	// Next returns the first message on a subject, perhaps with wildcards, at a position or after
	// it; NotFound without one. It is for a few thousand messages that are read once.
	Next(ctx context.Context, stream, subject string, from uint64) (Stored, error)
}

// HeaderValue returns the first value of a name in any case, as clients in other languages write
// Traceparent; an exact match takes precedence, so that the result is deterministic.
func HeaderValue(h map[string][]string, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	for _, k := range slices.Sorted(maps.Keys(h)) {
		if strings.EqualFold(k, name) && len(h[k]) > 0 {
			return h[k][0]
		}
	}
	return ""
}

// Message is a message to store.
type Message struct {
	Subject string
	ID      string // de-duplication key; empty = none
	Header  map[string][]string
	Data    []byte
	TTL     time.Duration // after which it need not be kept, in whole seconds; 0 = as long as its stream keeps messages
}

// Consumer describes a shared durable consumer.
type Consumer struct {
	Stream   string
	Durable  string
	Subjects []string      // a changed list holds for messages published after the change
	AckWait  time.Duration // 0 = 2 s
	Parallel int           // unsettled messages at once; 0 = 256
}

// WithDefaults returns the consumer with what is not given.
func (c Consumer) WithDefaults() Consumer {
	c.AckWait, c.Parallel = cmp.Or(c.AckWait, 2*time.Second), cmp.Or(c.Parallel, 256)
	return c
}

// Delivery is one message from a consumer, to be settled exactly once.
type Delivery struct {
	Stored
	Attempt int                       // from 1
	Ack     func()                    // done
	Retry   func(after time.Duration) // again later
	Drop    func(reason string)       // never again
}

// Start is where a Follow begins.
type Start int

// Starting positions.
const (
	FromNew      Start = iota // only new messages
	FromFirst                 // all stored messages
	FromSequence              // Follow.Sequence
	FromTime                  // the first message stored at Follow.Since or later; if there is none yet, as FromNew
)

// Follow describes an ordered read of a stream.
type Follow struct {
	Stream   string
	Subjects []string
	Start    Start
	Sequence uint64
	Since    time.Time // of the clock of Stored.Time
}

// Clock is the clock of Stored.Time.
type Clock interface {
	// Now returns its time, within the duration of the call.
	Now(ctx context.Context) (time.Time, error)
}

// Calls is request and reply over core NATS.
type Calls interface {
	// Call sends a request and waits for the answer. Without a subscriber it is Unavailable at
	// once, because of ErrNoResponder. A refusal is returned with its code.
	Call(ctx context.Context, subject string, data []byte) ([]byte, error)
	// Serve answers requests on a subject, which it shares with all that give the same queue (empty
	// = alone). handle runs concurrently. It blocks.
	Serve(ctx context.Context, subject, queue string, handle func(ctx context.Context, data []byte) ([]byte, error)) error
}

// Signals is publish and subscribe over core NATS: a signal may be lost. One of an agent may come
// twice to agents at other brokers, if the accounts of identities are involved.
type Signals interface {
	// Send sends a signal without waiting. It fails only if the message is too large or the process
	// is shutting down.
	Send(subject string, data []byte) error
	// Hear calls fn for each signal in order; with a queue each signal goes to one of its
	// subscribers. It blocks. ready (may be nil) is called once the subscription is established.
	Hear(ctx context.Context, subject, queue string, fn func(subject string, data []byte), ready func()) error
	// Launches calls fn with every stored message on subject: the last one of each, new ones, and
	// after a reconnect those missed. A message may arrive twice. Agents use it to receive launches
	// without a consumer of their own. It blocks.
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
	// revision. Conflict if it is not. After any other error it is unknown whether the value was
	// stored.
	Save(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	// Delete removes the key if it is still at revision.
	Delete(ctx context.Context, key string, revision uint64) error
	// Watch calls fn with every present key, then listed (may be nil), then fn with every change;
	// value nil = removed. It blocks.
	Watch(ctx context.Context, fn func(key string, value []byte, revision uint64), listed func()) error
}

// Link identifies one connection of a process to the brokers. The zero value is unknown.
type Link struct {
	Server string `json:"server,omitempty" bound:"word"` // id of the broker's run
	Client uint64 `json:"client,omitempty"`              // id of the connection there, never reused
	// Number of the process's connections so far, including this one: orders those of one
	// incarnation.
	Count uint64 `json:"count,omitempty"`
}

// Known reports whether the link identifies a connection.
func (l Link) Known() bool { return l.Server != "" }

// Same reports whether both identify the same connection; brokers know no counts.
func (l Link) Same(m Link) bool { return l.Known() && l.Server == m.Server && l.Client == m.Client }

// After reports whether l is a newer connection of the same process than m.
func (l Link) After(m Link) bool { return l.Known() && (!m.Known() || l.Count > m.Count) }

// Links provides information about connections to the brokers.
type Links interface {
	// Own returns the present connection of this process, or the zero value while there is none.
	Own() Link
	// Ends calls fn with each connection that the brokers see close, including this process's own,
	// in no order. A report may be missed; those of a broker that dies itself always are. The
	// reason is unknown: the process may have died, said goodbye or be reconnecting. ready (may be
	// nil) is called once the subscription is established. It blocks. NotFound without access to
	// the brokers' reports.
	Ends(ctx context.Context, fn func(Link), ready func()) error
	// Alone reports whether the broker of the present connection is the only one, so that a
	// process that is not connected to it is connected to none.
	Alone() bool
	// Outage returns what the attempts to connect show, while there is no connection.
	Outage() Outage
	// Majority asks the brokers that store a bucket again and again, and calls fn with the time of
	// each question that most of them have answered: then this process was not cut off from where
	// changes are stored. While the broker of the connection is alone it calls fn with alone
	// instead. It blocks. NotFound if this process may not ask.
	Majority(ctx context.Context, bucket string, fn func(asked time.Time, alone bool)) error
}

// Outage is what a process without a connection knows about the brokers. The zero value is nothing,
// or that there is a connection.
type Outage struct {
	// Denied: a broker has refused the credentials of this process.
	Denied bool
	// Stopped is when it was certain last that no broker ran: the host of each has refused a
	// connection since. Nobody decides anything without a broker. Zero = it is not known.
	Stopped time.Time
}

// Brokers asks the brokers about themselves, for people: nothing is decided on the answers.
type Brokers interface {
	// Connected returns the name of the broker that this process is connected to, or "" while there
	// is none.
	Connected() string
	// Streams returns the state of each of Streams, in their order, with the consumers of services
	// that exist. What is not answered before ctx ends, or within a limit of a few seconds, has the
	// reason in Unknown.
	Streams(ctx context.Context) []StreamState
}

// StreamState is what its leader reports about a stream.
type StreamState struct {
	Stream    string          `json:"stream"`
	Unknown   string          `json:"unknown,omitempty"` // why nothing else is known; empty = it is
	Leader    string          `json:"leader,omitempty"`  // name of the broker
	Replicas  []ReplicaState  `json:"replicas"`          // every copy, the leader's first
	Messages  uint64          `json:"messages"`
	Bytes     uint64          `json:"bytes"`
	MaxBytes  uint64          `json:"max_bytes"` // 0 = no limit
	Refuses   bool            `json:"refuses"`   // once full it refuses messages; others drop their oldest
	Consumers []ConsumerState `json:"consumers"`
}

// Full returns which part of its limit the stream stores; 0 without a limit.
func (s StreamState) Full() float64 {
	if s.MaxBytes == 0 {
		return 0
	}
	return float64(s.Bytes) / float64(s.MaxBytes)
}

// ReplicaState is what a stream's leader knows of one copy.
type ReplicaState struct {
	Broker  string   `json:"broker"`
	Leader  bool     `json:"leader,omitempty"`
	Current bool     `json:"current"` // it has everything that the leader has, and was heard lately
	Offline bool     `json:"offline"` // the broker is gone, as far as the leader knows
	Lag     uint64   `json:"lag"`     // messages, and other entries of the stream's log, that it lacks
	SeenMS  *float64 `json:"seen_ms"` // since the leader heard it; null = never, or it is the leader
}

// ConsumerState is how far the replicas of a service together are in a stream.
type ConsumerState struct {
	Consumer    string `json:"consumer"`
	Service     string `json:"service"`
	Unknown     string `json:"unknown,omitempty"` // why the numbers are not known; empty = they are
	Pending     uint64 `json:"pending"`           // messages that were delivered to no replica yet
	AckPending  uint64 `json:"ack_pending"`       // delivered and not settled
	Redelivered uint64 `json:"redelivered"`       // those of them that were delivered more than once
}

// Backlog returns how many messages the service has still to handle.
func (c ConsumerState) Backlog() uint64 { return c.Pending + c.AckPending }

// ErrNoResponder is the cause of an Unavailable call to a subject that nobody serves.
var ErrNoResponder = errors.New("no responder")
