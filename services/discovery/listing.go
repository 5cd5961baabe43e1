package discovery

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/controller"
)

// listing is the host list as one replica knows it, beside the nodes that are on record. The newest
// good answer is kept: a source that fails changes nothing. Each answer is compared with every
// node, so that nothing is ever missed; between two answers only nodes that are new to the replica
// are, so that replicas whose answers differ for a moment do not undo each other's without end.
type listing struct {
	c HostConfig

	mu    sync.Mutex
	hosts *Hosts // nil = no good answer yet
	nodes map[events.NodeID]events.NodeView
	said  string // the last failure that was reported
}

// know takes in a record; it returns what is to be said of a node that this replica sees for the
// first time.
func (l *listing) know(v events.NodeView) (events.HostEntry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.nodes[v.Node]
	if l.nodes == nil {
		l.nodes = map[events.NodeID]events.NodeView{}
	}
	l.nodes[v.Node] = v
	if known {
		return events.HostEntry{}, false
	}
	return l.news(v)
}

func (l *listing) forget(n events.NodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.nodes, n)
}

// news is what the list says of a node, if that is not on its record.
func (l *listing) news(v events.NodeView) (events.HostEntry, bool) {
	if l.c.Listed() && l.hosts == nil {
		return events.HostEntry{}, false // its record has the last good answer
	}
	b := l.of(v.Node, v.Address)
	same := (v.Cap == nil) == (b.Slots == nil) && (v.Cap == nil || *v.Cap == *b.Slots)
	return b, !same || v.Excluded != b.Excluded || v.Order != b.Order
}

// of is what the list says of a node, known or not.
func (l *listing) of(n events.NodeID, advertised string) events.HostEntry {
	b := events.HostEntry{Node: n}
	switch {
	case !l.c.Listed():
	case l.hosts == nil:
		b.Excluded = "the list of hosts is not known yet"
	case len(l.hosts.Lines) == 0:
		b.Excluded = l.c.empty()
	default:
		h, ok := l.hosts.Of(n, advertised)
		if b.Slots, b.Order = h.Slots, l.hosts.Order(n, advertised); !ok {
			b.Excluded = l.c.unnamed()
		}
	}
	return b
}

// greet puts what the list says of an agent into its hello, so that a node which is not on it never
// gets work for an instant.
func (l *listing) greet(b *events.NodeHello) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.nodes[b.Node]; known && l.c.Listed() && l.hosts == nil {
		return
	}
	said := l.of(b.Node, b.Address)
	b.HostEntry = &said
}

// run asks the source until ctx ends. The script runs outside of any lock.
func (l *listing) run(ctx context.Context, emit controller.Emit, observe func(controller.Observation)) error {
	for l.c.Listed() {
		hosts, err := l.c.Ask(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := l.answered(hosts, err); err != nil && observe != nil {
			observe(controller.Observation{Service: events.ServiceDiscovery, Err: err})
		}
		for _, b := range l.all() {
			emit(events.Input{Body: b})
		}
		select {
		case <-ctx.Done():
		case <-time.After(l.c.HostEvery):
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// answered takes an answer in and returns a failure that was not reported yet.
func (l *listing) answered(h Hosts, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.hosts, l.said = &h, ""
		return nil
	}
	if l.said == err.Error() {
		return nil
	}
	l.said = err.Error()
	kept := "no node is let in until it answers"
	if l.hosts != nil {
		kept = "the last good answer stands"
	}
	return events.Errorf(events.CodeOf(err), "%w; %s", err, kept)
}

// all is what is to be said of the nodes on record, by name.
func (l *listing) all() []events.HostEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []events.HostEntry
	for _, n := range slices.Sorted(maps.Keys(l.nodes)) {
		if b, news := l.news(l.nodes[n]); news {
			out = append(out, b)
		}
	}
	return out
}
