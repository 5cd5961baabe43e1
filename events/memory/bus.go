// Package memory implements the ports inside one process: for unit tests, for the simulator and for
// virtual time (testing/synctest). It behaves like the real broker in all that callers can observe:
// conflicts, redelivery, de-duplication window, lost signals, lost acknowledgements, closed
// connections.
package memory

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
)

// maxMessage is the limit of one message or value, NATS' default.
const maxMessage = 1 << 20

// Options of a Bus.
type Options struct {
	Now   func() time.Time // nil = time.Now
	Dedup time.Duration    // how long streams remember message ids; 0 = JetStream's default, 2 min
	// Observers are called after each change, and may call the bus. They are called in order as
	// long as one goroutine at a time makes changes.
	Stored  func(stream string, m broker.Stored)
	Changed func(bucket, key string, value []byte, revision uint64) // value nil = removed
	Sent    func(subject string, data []byte)                       // a signal
}

// Bus is the broker of one system. Create it with New.
type Bus struct {
	mu           sync.Mutex
	o            Options
	streams      map[string]*stream
	buckets      map[string]*bucket
	subs         []*mailbox[broker.Stored]
	servers      []*mailbox[call]
	watchers     []*mailbox[bool]        // of the state of connections
	ends         []*mailbox[broker.Link] // of closed connections
	made         uint64                  // connections
	nextReceiver map[string]int          // per queue group: index of the next receiver
	own          *Client
	clients      []*Client
	changes      []func() // calls of observers, to be made without the lock

	dropSignals func(subject string) bool
	failSaves   func(bucket, key string) (loseAck bool, err error)
	failPublish func(subject string) (loseAck bool, err error)
}

// New returns an empty system with the streams and buckets of the topology.
func New() *Bus { return NewWith(Options{}) }

// NewWith is New with options.
func NewWith(o Options) *Bus {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Dedup == 0 {
		o.Dedup = dedupWindow
	}
	b := &Bus{o: o, streams: map[string]*stream{}, buckets: map[string]*bucket{}, nextReceiver: map[string]int{}}
	for name, s := range map[string]stream{
		events.StreamCommands: {subjects: events.AllCommands, workQueue: true},
		events.StreamFacts:    {subjects: events.AllFacts},
		events.StreamLaunches: {subjects: events.AllLaunches, lastOnly: true},
		events.StreamLogs:     {subjects: events.AllLogs},
		events.StreamSpans:    {subjects: events.AllSpans},
	} {
		s.name, s.ids, s.durables, s.last = name, map[string]uint64{}, map[string]*durable{}, map[string]broker.Stored{}
		b.streams[name] = &s
	}
	for _, s := range events.Services() {
		b.buckets[s.Bucket] = &bucket{bus: b, name: s.Bucket, entries: map[string]entry{}}
	}
	b.own = b.Client()
	return b
}

// Client is one process's connection to the system.
type Client struct {
	bus       *Bus
	down      bool
	link      broker.Link
	intercept Interceptor // nil = none
}

// Operation identifies a request to the broker.
type Operation int

// Operations that an Interceptor handles.
const (
	Load Operation = iota
	Save
	Delete
	Watch // up to the list of present keys and beyond
	Publish
	Last
	Now
	Send
)

// Interceptor handles each request of a connection: execute executes it and returns its error. What
// the interceptor returns is the answer. An error without a call of execute is a request that was
// lost, another error than that of execute a lost answer. It is called without a lock, and may
// return late.
type Interceptor func(op Operation, execute func() error) error

// Client returns a new connection, which can be closed alone.
func (b *Bus) Client() *Client { return b.Intercepted(nil) }

// Intercepted is Client with faults.
func (b *Bus) Intercepted(by Interceptor) *Client {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &Client{bus: b, intercept: by}
	c.connect()
	b.clients = append(b.clients, c)
	return c
}

// Ports returns the ports of a connection that all callers share.
func (b *Bus) Ports() broker.Ports { return b.own.Ports() }

// Ports returns the ports of this connection.
func (c *Client) Ports() broker.Ports {
	return broker.Ports{Log: log{c}, Calls: calls{c}, Signals: signals{c}, Buckets: buckets{c}, Links: links{c}, Clock: log{c}, Brokers: brokers{c}}
}

// Disconnect closes every connection, as the end of the broker does. Until Connect, calls and
// writes are Unavailable, signals and acknowledgements are lost. The closed connections are not
// reported.
func (b *Bus) Disconnect() { b.each(func(c *Client) { c.setDown(true, false) }) }

// Connect restores every connection.
func (b *Bus) Connect() { b.each((*Client).Connect) }

func (b *Bus) each(do func(*Client)) {
	b.mu.Lock()
	clients := slices.Clone(b.clients)
	b.mu.Unlock()
	for _, c := range clients {
		do(c)
	}
}

// Disconnect closes this connection, which is reported.
func (c *Client) Disconnect() { c.setDown(true, true) }

// Connect restores this connection.
func (c *Client) Connect() { c.setDown(false, false) }

func (c *Client) setDown(down, seen bool) {
	c.bus.mu.Lock()
	defer c.bus.mu.Unlock()
	if c.down == down {
		return
	}
	c.down = down
	for _, w := range c.bus.watchers {
		if w.client == c {
			w.push(!down)
		}
	}
	if down {
		c.disconnect(seen)
		return
	}
	c.connect()
	for _, s := range c.bus.subs {
		if s.client == c && s.stream != nil {
			s.items = s.stream.lasts([]string{s.subject})
			wakeUp(s.wake)
		}
	}
	for _, s := range c.bus.streams {
		s.wakeAll()
	}
	for _, k := range c.bus.buckets {
		k.resync(c)
	}
}

// DropSignals drops every signal on a subject for which drop returns true, including live launches,
// which use the same subscriptions. nil = none. drop must not call the bus.
func (b *Bus) DropSignals(drop func(subject string) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropSignals = drop
}

// FailSaves lets fail decide about each save that would succeed: an error makes it fail; with
// loseAck the value is stored nevertheless (err nil = Unavailable). nil = none. fail must not call
// the bus.
func (b *Bus) FailSaves(fail func(bucket, key string) (loseAck bool, err error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failSaves = fail
}

// FailPublishes is FailSaves for messages to streams.
func (b *Bus) FailPublishes(fail func(subject string) (loseAck bool, err error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failPublish = fail
}

// faultResult returns whether to store, and the error, for the result of a fault hook.
func faultResult(loseAck bool, err error) (store bool, answer error) {
	if loseAck && err == nil {
		err = errcode.Errorf(errcode.Unavailable, "the acknowledgement was lost")
	}
	return loseAck || err == nil, err
}

// do executes an operation with the bus locked, through the interceptor if there is one.
func (c *Client) do(op Operation, execute func() error) error {
	locked := func() error {
		c.bus.mu.Lock()
		err := execute()
		changes := c.bus.changes
		c.bus.changes = nil
		c.bus.mu.Unlock()
		for _, observe := range changes {
			observe()
		}
		return err
	}
	if c.intercept == nil {
		return locked()
	}
	return c.intercept(op, locked)
}

// ready returns why this connection cannot be used now. The bus must be locked.
func (c *Client) ready(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if c.down {
		return errcode.Errorf(errcode.Unavailable, "not connected")
	}
	return nil
}

func checkSize(n int) error {
	if n > maxMessage {
		return errcode.Errorf(errcode.TooLarge, "message has %d bytes, at most %d are allowed", n, maxMessage)
	}
	return nil
}

// register adds v to a list of the bus, which must be locked; leave, without the lock, undoes it.
func register[T comparable](b *Bus, list *[]T, v T) (leave func()) {
	*list = append(*list, v)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		*list = slices.DeleteFunc(*list, func(x T) bool { return x == v })
	}
}

// mailbox is an unbounded queue with one reader, guarded by the bus.
type mailbox[T any] struct {
	client         *Client
	subject, queue string  // of a subscription or a server
	stream         *stream // of a subscription to launches
	items          []T
	wake           chan struct{}
}

func newMailbox[T any](c *Client) *mailbox[T] {
	return &mailbox[T]{client: c, wake: make(chan struct{}, 1)}
}

func (q *mailbox[T]) push(v ...T) {
	q.items = append(q.items, v...)
	wakeUp(q.wake)
}

func wakeUp(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// receive registers q in a list of the bus and calls fn with each item until ctx ends. first is
// called with the bus locked, ready once q is registered; both may be nil.
func receive[T any](ctx context.Context, q *mailbox[T], list *[]*mailbox[T], first, ready func(), fn func(T)) error {
	b := q.client.bus
	b.mu.Lock()
	if first != nil {
		first()
	}
	leave := register(b, list, q)
	b.mu.Unlock()
	defer leave()
	if ready != nil {
		ready()
	}
	return q.drain(ctx, fn)
}

// drain calls fn with each item until ctx ends.
func (q *mailbox[T]) drain(ctx context.Context, fn func(T)) error {
	for {
		q.client.bus.mu.Lock()
		batch := q.items
		q.items = nil
		q.client.bus.mu.Unlock()
		for _, v := range batch {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			fn(v)
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// copied returns a copy that shares no memory with the caller's message.
func copied(m broker.Message) broker.Message {
	h := maps.Clone(m.Header)
	for k, v := range h {
		h[k] = slices.Clone(v)
	}
	m.Header, m.Data = h, bytes.Clone(m.Data)
	return m
}
