// Package feed reads the streams and buckets once for all clients of a gateway: the newest facts in
// a ring, the views of the services in memory, and what the workers signal.
package feed

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/services/gateway/brokers"
)

// Limits of what is kept in memory.
const (
	recentBytes = 8 << 20         // of the newest facts
	recentFacts = 1 << 14         // entries of the same
	retryPause  = 1 * time.Second // before a read is begun again
)

// Feed is the shared copy. Its methods may be called concurrently.
type Feed struct {
	Facts *Ring // the newest facts, resumable by their position in the stream
	Live  *Ring // changes of views and progress; its numbers are of this process only

	ports    broker.Ports
	warn     func(string, error)
	link     atomic.Pointer[link]
	caughtUp atomic.Bool

	jobs   table[events.JobView]
	nodes  table[events.NodeView]
	rounds table[events.RoundView]
	pools  table[events.PoolView]

	brokers atomic.Pointer[brokers.Report] // nil = none yet
	series  series
	usages  usages
	tails   tails

	observers []func(events.Event)
}

// link is the state of the connection to the brokers, and since when.
type link struct {
	connected bool
	since     time.Time
}

// New returns a feed over ports that holds nothing yet. warn is called with the subject of a read
// that failed and its error.
func New(ports broker.Ports, warn func(subject string, err error)) *Feed {
	f := &Feed{Facts: NewRing(recentFacts, recentBytes), Live: NewRing(recentFacts, recentBytes), ports: ports, warn: warn}
	f.link.Store(&link{since: time.Now()})
	f.series.jobs = map[ident.JobID]*jobSeries{}
	f.usages.nodes = map[ident.NodeID]NodeUsage{}
	f.tails.feed, f.tails.jobs = f, map[ident.JobID]*Tail{}
	return f
}

// Observe adds a function that is called with each new fact. It must be called before Run.
func (f *Feed) Observe(fn func(events.Event)) { f.observers = append(f.observers, fn) }

// Run reads until ctx ends. Interrupted reads are begun again.
func (f *Feed) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.ports.Signals.Watch(ctx, f.linked) })
	g.Go(func() error { return f.readFacts(ctx) })
	g.Go(func() error { return f.hearProgress(ctx) })
	g.Go(func() error { return f.hearUsage(ctx) })
	g.Go(func() error { return f.observeBrokers(ctx) })
	watch(ctx, g, f, events.BucketJobs, &f.jobs, "job")
	watch(ctx, g, f, events.BucketNodes, &f.nodes, "node")
	watch(ctx, g, f, events.BucketRounds, &f.rounds, "job")
	watch(ctx, g, f, events.BucketPlacements, &f.pools, "pool")
	return g.Wait()
}

// linked notes the state of the connection, and tells those who follow of a change.
func (f *Feed) linked(connected bool) {
	if f.link.Load().connected == connected {
		return
	}
	f.link.Store(&link{connected, time.Now()})
	f.change("link", "")
}

// Connected reports whether the connection to the brokers is up.
func (f *Feed) Connected() bool { return f.link.Load().connected }

// ConnectedSince reports that, and since when it is so.
func (f *Feed) ConnectedSince() (bool, time.Time) {
	l := f.link.Load()
	return l.connected, l.since
}

// Ready returns an error that says what is missing until every view was read once.
func (f *Feed) Ready() error {
	switch {
	case !f.Connected():
		return errcode.Errorf(errcode.Unavailable, "not connected to NATS")
	case !f.caughtUp.Load():
		return errcode.Errorf(errcode.Unavailable, "the stream of facts is being read")
	case !f.jobs.listed() || !f.nodes.listed() || !f.rounds.listed() || !f.pools.listed():
		return errcode.Errorf(errcode.Unavailable, "the views of the services are being read")
	}
	return nil
}

// Await waits until Ready, or ctx ends.
func (f *Feed) Await(ctx context.Context) error {
	for {
		_, changed := f.Live.After(1<<63, 1)
		err := f.Ready()
		if err == nil {
			return nil
		}
		limit, cancel := context.WithTimeout(ctx, retryPause) // the connection's state is in no ring
		select {
		case <-changed:
		case <-limit.Done():
		}
		cancel()
		if ctx.Err() != nil {
			return err
		}
	}
}

// table is the watched copy of a bucket.
type table[V any] struct {
	mu   sync.RWMutex
	rows map[string]row[V]
	done bool // every row that was there at the start was read
}

type row[V any] struct {
	view     V
	revision uint64
	numbers  map[events.Family]uint64 // of the last facts that the view shows
}

func (t *table[V]) listed() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.done
}

func (t *table[V]) get(key string) (V, uint64, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	r, ok := t.rows[key]
	return r.view, r.revision, ok
}

// shows reports whether the view of an entity contains a fact.
func (t *table[V]) shows(key string, f events.Family, number uint64) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	r, ok := t.rows[key]
	return ok && r.numbers[f] >= number
}

func (t *table[V]) all() []V {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := make([]V, 0, len(t.rows))
	for _, r := range t.rows {
		out = append(out, r.view)
	}
	return out
}
