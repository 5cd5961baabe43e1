// Package memory is the ports inside one process: for unit tests, for the simulator and for virtual
// time (testing/synctest). It behaves like the real store where the two could differ to a caller:
// conflicts, redelivery, de-duplication window, lost signals, lost acknowledgements, cut
// connections.
package memory

import (
	"bytes"
	"context"
	"maps"
	"strings"
	"sync"

	"github.com/regroup-io/regroup/events"
)

// maxMessage is the limit of one message or value, as NATS has it by default.
const maxMessage = 1 << 20

// Bus is the store and the wires of one system. Make it with New.
type Bus struct {
	mu       sync.Mutex
	streams  map[string]*stream
	buckets  map[string]*bucket
	subs     []*subscription
	servers  []*server
	watchers []*stateWatcher
	ends     []*endWatcher
	made     uint64         // connections
	turn     map[string]int // per queue group: whose turn it is
	own      *Client
	clients  []*Client

	dropSignals func(subject string) bool
	failSaves   func(bucket, key string) (loseAck bool, err error)
	failPublish func(subject string) (loseAck bool, err error)
}

// New returns an empty system with the streams and buckets of the topology.
func New() *Bus {
	b := &Bus{streams: map[string]*stream{}, buckets: map[string]*bucket{}, turn: map[string]int{}}
	for name, s := range map[string]stream{
		events.StreamCommands: {subjects: events.AllCommands, workQueue: true},
		events.StreamFacts:    {subjects: events.AllFacts},
		events.StreamLaunches: {subjects: events.AllLaunches, lastOnly: true},
		events.StreamLogs:     {subjects: events.AllLogs},
		events.StreamSpans:    {subjects: events.AllSpans},
	} {
		s.name, s.ids, s.durables, s.last = name, map[string]uint64{}, map[string]*durable{}, map[string]events.Stored{}
		b.streams[name] = &s
	}
	for _, name := range []string{events.BucketNodes, events.BucketPlacements, events.BucketRounds, events.BucketJobs} {
		b.buckets[name] = &bucket{name: name, entries: map[string]entry{}}
	}
	b.own = b.Client()
	return b
}

// Client is one process's connection to the system.
type Client struct {
	bus  *Bus
	down bool
	link events.Link
}

// Client returns a connection of its own, to be cut alone.
func (b *Bus) Client() *Client {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &Client{bus: b}
	c.connect()
	b.clients = append(b.clients, c)
	return c
}

// Ports returns the ports of a connection that all callers share.
func (b *Bus) Ports() events.Ports { return b.own.Ports() }

// Ports returns the ports of this connection.
func (c *Client) Ports() events.Ports {
	return events.Ports{Log: log{c}, Calls: calls{c}, Signals: signals{c}, Buckets: buckets{c}, Links: links{c}, Clock: log{c}}
}

// Disconnect cuts every connection, as the end of the broker does. Until Connect, calls and stores
// are Unavailable, signals and acknowledgements are lost. Nobody hears of the ends.
func (b *Bus) Disconnect() { b.each(func(c *Client) { c.turn(true, false) }) }

// Connect restores every connection.
func (b *Bus) Connect() { b.each((*Client).Connect) }

func (b *Bus) each(do func(*Client)) {
	b.mu.Lock()
	clients := append([]*Client(nil), b.clients...)
	b.mu.Unlock()
	for _, c := range clients {
		do(c)
	}
}

// Disconnect cuts this connection, which the broker sees.
func (c *Client) Disconnect() { c.turn(true, true) }

// Connect restores this connection.
func (c *Client) Connect() { c.turn(false, false) }

func (c *Client) turn(down, seen bool) {
	c.bus.mu.Lock()
	defer c.bus.mu.Unlock()
	if c.down == down {
		return
	}
	c.down = down
	for _, w := range c.bus.watchers {
		if w.client == c {
			w.inbox.push(!down)
		}
	}
	if down {
		c.disconnect(seen)
		return
	}
	c.connect()
	for _, s := range c.bus.subs {
		if s.client == c && s.stream != nil {
			s.inbox.items = s.stream.lasts([]string{s.subject})
			s.inbox.poke()
		}
	}
	for _, s := range c.bus.streams {
		s.pokeAll()
	}
	for _, k := range c.bus.buckets {
		k.resync(c)
	}
}

// DropSignals makes every signal on a subject for which drop is true get lost, live launches
// included (those are heard over the same plain subscriptions). nil = none. drop must not call the
// bus.
func (b *Bus) DropSignals(drop func(subject string) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropSignals = drop
}

// FailSaves lets fail decide about each save that would succeed: an error makes it fail; with
// loseAck the value is stored all the same (err nil = Unavailable). nil = none. fail must not call
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

// verdict unifies the answers of the two fault hooks.
func verdict(loseAck bool, err error) (store bool, answer error) {
	if loseAck && err == nil {
		err = events.Errorf(events.Unavailable, "the acknowledgement was lost")
	}
	return loseAck || err == nil, err
}

// ready says why this connection cannot be used now. The bus is locked.
func (c *Client) ready(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if c.down {
		return events.Errorf(events.Unavailable, "not connected")
	}
	return nil
}

func checkSize(n int) error {
	if n > maxMessage {
		return events.Errorf(events.TooLarge, "message has %d bytes, at most %d are allowed", n, maxMessage)
	}
	return nil
}

// inbox is an unbounded queue with one reader, guarded by the bus.
type inbox[T any] struct {
	items []T
	wake  chan struct{}
}

func newInbox[T any]() *inbox[T] { return &inbox[T]{wake: make(chan struct{}, 1)} }

func (q *inbox[T]) push(v T) {
	q.items = append(q.items, v)
	q.poke()
}

func (q *inbox[T]) poke() { poke(q.wake) }

func poke(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default: // it will look anyway
	}
}

// drain calls fn with what comes until ctx ends.
func drain[T any](ctx context.Context, b *Bus, q *inbox[T], fn func(T)) error {
	for {
		b.mu.Lock()
		batch := q.items
		q.items = nil
		b.mu.Unlock()
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

// match tells whether a subject matches a pattern with * (one token) and > (the rest).
func match(pattern, subject string) bool {
	for {
		p, restP, moreP := strings.Cut(pattern, ".")
		if p == ">" {
			return subject != ""
		}
		s, restS, moreS := strings.Cut(subject, ".")
		if p != s && p != "*" || moreP != moreS {
			return false
		}
		if !moreP {
			return true
		}
		pattern, subject = restP, restS
	}
}

func matchAny(patterns []string, subject string) bool {
	for _, p := range patterns {
		if match(p, subject) {
			return true
		}
	}
	return false
}

// copied makes what is stored independent of the caller's memory.
func copied(m events.Message) events.Message {
	h := maps.Clone(m.Header)
	for k, v := range h {
		h[k] = append([]string(nil), v...)
	}
	m.Header, m.Data = h, bytes.Clone(m.Data)
	return m
}
