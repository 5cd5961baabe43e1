package discovery

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/controller"
)

// listing is the host list of one replica, together with the recorded nodes. The newest valid
// answer is kept: a source that fails changes nothing. Each answer is compared with every node, so
// that none is missed. Between answers only nodes that are new to the replica are compared, so that
// replicas with temporarily different answers do not revert each other endlessly.
type listing struct {
	c HostConfig

	mu            sync.Mutex
	hosts         *Hosts // nil = no valid answer yet
	nodes         map[ident.NodeID]events.NodeView
	reportedError string // the last error reported
}

// know adds a record, and returns the entry to be applied to a node that is new to this replica.
func (l *listing) know(v events.NodeView) (events.HostEntry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.nodes[v.Node]
	l.nodes[v.Node] = v
	if known {
		return events.HostEntry{}, false
	}
	return l.update(v)
}

func (l *listing) forget(n ident.NodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.nodes, n)
}

// update returns a node's entry if its record differs.
func (l *listing) update(v events.NodeView) (events.HostEntry, bool) {
	if l.c.Listed() && l.hosts == nil {
		return events.HostEntry{}, false // its record has the last valid answer
	}
	b := l.of(v.Node, v.Address)
	same := (v.Cap == nil) == (b.Slots == nil) && (v.Cap == nil || *v.Cap == *b.Slots)
	return b, !same || v.Excluded != b.Excluded || v.Order != b.Order
}

// of returns the entry of a node, recorded or not.
func (l *listing) of(n ident.NodeID, advertised string) events.HostEntry {
	b := events.HostEntry{Node: n}
	switch {
	case !l.c.Listed():
	case l.hosts == nil:
		b.Excluded = "the list of hosts is not known yet"
	case len(l.hosts.Lines) == 0:
		b.Excluded = l.c.empty()
	default:
		if b.Order = l.hosts.Of(n, advertised); b.Order == 0 {
			b.Excluded = l.c.unnamed()
		} else {
			b.Slots = l.hosts.Lines[b.Order-1].Slots
		}
	}
	return b
}

// greet adds the host entry to an agent's hello, so that an unlisted node never gets work.
func (l *listing) greet(b *events.NodeHello) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.nodes[b.Node]; known && l.c.Listed() && l.hosts == nil {
		return
	}
	entry := l.of(b.Node, b.Address)
	b.HostEntry = &entry
}

// run reads the source until ctx ends. The script runs without holding the lock.
func (l *listing) run(ctx context.Context, emit controller.Emit, observe func(controller.Observation)) error {
	for l.c.Listed() {
		hosts, err := l.c.Ask(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := l.answered(hosts, err); err != nil {
			observe(controller.Observation{Service: events.ServiceDiscovery, Err: err})
		}
		for _, b := range l.all() {
			emit(events.Input{Body: b})
		}
		if !wait.Sleep(ctx, l.c.HostEvery) {
			return ctx.Err()
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// answered applies an answer and returns an error that was not reported yet.
func (l *listing) answered(h Hosts, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.hosts, l.reportedError = &h, ""
		return nil
	}
	if l.reportedError == err.Error() {
		return nil
	}
	l.reportedError = err.Error()
	kept := "no node is let in until it answers"
	if l.hosts != nil {
		kept = "the last good answer stands"
	}
	return errcode.Errorf(errcode.Of(err), "%w; %s", err, kept)
}

// all returns the entries of all recorded nodes, by name.
func (l *listing) all() []events.HostEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []events.HostEntry
	for _, n := range slices.Sorted(maps.Keys(l.nodes)) {
		if b, changed := l.update(l.nodes[n]); changed {
			out = append(out, b)
		}
	}
	return out
}
