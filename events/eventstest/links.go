package eventstest

import (
	"context"
	"testing"

	"github.com/regroup-io/regroup/events"
)

// hearEnds collects the ends of connections.
func hearEnds(t *testing.T, p events.Ports) chan events.Link {
	t.Helper()
	ends, ready := make(chan events.Link, 1000), make(chan struct{})
	background(t, func(ctx context.Context) error {
		return p.Links.Ends(ctx, func(l events.Link) { ends <- l }, func() { close(ready) })
	})
	next(t, ready, "the ends of connections are heard")
	return ends
}

// wantEnd waits for the end of one connection among those of others.
func wantEnd(t *testing.T, ends <-chan events.Link, l events.Link, what string) {
	t.Helper()
	for !next(t, ends, what).Same(l) {
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
	was := other.Ports.Links.Own()
	other.Reconnect()
	wantEnd(t, first, was, "the end of a connection that is cut")
	wantEnd(t, second, was, "every listener hears it")
	is := other.Ports.Links.Own()
	other.End()
	wantEnd(t, first, is, "the end of a process")
	if own := other.Ports.Links.Own(); own.Known() {
		t.Errorf("a process without a connection names %+v", own)
	}
}
