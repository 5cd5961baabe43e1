package eventstest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events/broker"
)

func hearEnds(t *testing.T, p broker.Ports) chan broker.Link {
	t.Helper()
	ends, ready := make(chan broker.Link, 1000), make(chan struct{})
	background(t, func(ctx context.Context) error {
		return p.Links.Ends(ctx, func(l broker.Link) { ends <- l }, func() { close(ready) })
	})
	next(t, ready, "the ends of connections are heard")
	return ends
}

// wantEnd waits until every listener has received the connection that end closes and returns. A
// report may be lost, so end may be called again.
func wantEnd(t *testing.T, what string, end func() broker.Link, listeners ...<-chan broker.Link) {
	t.Helper()
	for range 5 {
		l := end()
		if !slices.ContainsFunc(listeners, func(ends <-chan broker.Link) bool { return !heardEnd(ends, l) }) {
			return
		}
	}
	t.Fatalf("not heard five times: %s", what)
}

// heardEnd waits for the report of one connection among others.
func heardEnd(ends <-chan broker.Link, l broker.Link) bool {
	late := time.After(patience / 5)
	for {
		select {
		case other := <-ends:
			if other.Same(l) {
				return true
			}
		case <-late:
			return false
		}
	}
}

func linkOwn(t *testing.T, h Harness) {
	other := h.Client(t)
	mine, theirs := h.Ports.Links.Own(), other.Ports.Links.Own()
	if !mine.Known() || !theirs.Known() || mine.Same(theirs) {
		t.Fatalf("two processes have the connections %+v and %+v", mine, theirs)
	}
	other.Reconnect()
	again := other.Ports.Links.Own()
	if again.Same(theirs) || !again.After(theirs) || theirs.After(again) {
		t.Errorf("after a reconnect the connection is %+v, was %+v", again, theirs)
	}
	if got := h.Ports.Links.Own(); !got.Same(mine) || got != mine {
		t.Errorf("a connection that was not cut is %+v, was %+v", got, mine)
	}
}

func linkEnds(t *testing.T, h Harness) {
	first, second := hearEnds(t, h.Ports), hearEnds(t, h.Ports)
	other := h.Client(t)
	wantEnd(t, "the end of a connection that is cut", func() broker.Link {
		was := other.Ports.Links.Own()
		other.Reconnect()
		return was
	}, first, second)
	var ended Client
	wantEnd(t, "the end of a process", func() broker.Link {
		ended = h.Client(t)
		is := ended.Ports.Links.Own()
		ended.End()
		return is
	}, first)
	if own := ended.Ports.Links.Own(); own.Known() {
		t.Errorf("a process without a connection names %+v", own)
	}
}
