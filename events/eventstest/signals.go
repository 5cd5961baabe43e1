package eventstest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
)

// hear collects "subject data" from an established subscription.
func hear(t *testing.T, p broker.Ports, subject, queue string) chan string {
	t.Helper()
	received, ready := make(chan string, 1000), make(chan struct{})
	background(t, func(ctx context.Context) error {
		return p.Signals.Hear(ctx, subject, queue, func(subject string, data []byte) { received <- subject + " " + string(data) }, func() { close(ready) })
	})
	next(t, ready, "the subscription stands")
	return received
}

func signalOrder(t *testing.T, h Harness) {
	job := ident.JobID(unique("job"))
	sub := events.NoticeSubject(job)
	exact, wild := hear(t, h.Ports, sub, ""), hear(t, h.Ports, events.AllNotices, "")
	const count = 200
	for i := range count {
		must(t, h.Ports.Signals.Send(sub, []byte(strconv.Itoa(i))))
	}
	for name, received := range map[string]chan string{"exact": exact, "wildcard": wild} {
		for i := range count {
			if got, want := next(t, received, name), fmt.Sprint(sub, " ", i); got != want {
				t.Fatalf("%s: heard %q, want %q", name, got, want)
			}
		}
	}
}

func signalQueue(t *testing.T, h Harness) {
	sub := events.HeartbeatSubject(ident.NodeID(unique("node")))
	alone := hear(t, h.Ports, sub, "")
	one, two := hear(t, h.Ports, sub, "q"), hear(t, h.Ports, sub, "q")
	const count = 60
	for i := range count {
		must(t, h.Ports.Signals.Send(sub, []byte(strconv.Itoa(i))))
	}
	for range count {
		next(t, alone, "without a queue every signal is heard")
	}
	var got []string
	for range count {
		select {
		case s := <-one:
			got = append(got, s)
		case s := <-two:
			got = append(got, s)
		case <-timeout(t).Done():
			t.Fatalf("the queue heard %d of %d signals", len(got), count)
		}
	}
	slices.Sort(got)
	if n := len(slices.Compact(got)); n != count {
		t.Errorf("the queue heard %d different signals of %d", n, count)
	}
	none(t, one, "heard twice")
	none(t, two, "heard twice")
}

func signalTooLarge(t *testing.T, h Harness) {
	wantCode(t, h.Ports.Signals.Send(events.NoticeSubject(ident.JobID(unique("job"))), huge()), errcode.TooLarge)
}

// launch stores a launch without waiting for subscribers.
func launch(t *testing.T, p broker.Ports, node, job, data string) {
	t.Helper()
	_, err := p.Log.Publish(timeout(t), broker.Message{Subject: events.LaunchSubject(ident.NodeID(node), ident.JobID(job)), Data: []byte(data)})
	must(t, err)
}

func hearLaunches(t *testing.T, p broker.Ports, node string) chan broker.Stored {
	t.Helper()
	received := make(chan broker.Stored, 1000)
	background(t, func(ctx context.Context) error {
		return p.Signals.Launches(ctx, events.StreamLaunches, events.LaunchSubject(ident.NodeID(node), "*"), func(s broker.Stored) { received <- s })
	})
	return received
}

// wantLaunches waits until each of want was received. A launch may arrive twice.
func wantLaunches(t *testing.T, received <-chan broker.Stored, want ...string) {
	t.Helper()
	missing := slices.Clone(want)
	for len(missing) > 0 {
		s := next(t, received, fmt.Sprint("launches ", missing))
		missing = slices.DeleteFunc(missing, func(m string) bool { return m == string(s.Data) })
	}
}

func launches(t *testing.T, h Harness) {
	node := unique("node")
	launch(t, h.Ports, node, "job-a", "a1")
	launch(t, h.Ports, node, "job-a", "a2")
	launch(t, h.Ports, node, "job-b", "b1")
	launch(t, h.Ports, unique("node"), "job-a", "of another node")
	received := hearLaunches(t, h.Ports, node)
	stored := map[string]string{}
	for range 2 {
		s := next(t, received, "stored launches")
		stored[s.Subject] = string(s.Data)
	}
	for job, want := range map[string]string{"job-a": "a2", "job-b": "b1"} {
		if got := stored[events.LaunchSubject(ident.NodeID(node), ident.JobID(job))]; got != want {
			t.Errorf("stored launch of %s is %q, want %q: the last one", job, got, want)
		}
	}
	launch(t, h.Ports, node, "job-b", "b2")
	wantLaunches(t, received, "b2")
	launch(t, h.Ports, node, "job-c", "c1")
	wantLaunches(t, received, "c1")
}

func launchesReconnect(t *testing.T, h Harness) {
	if h.Reconnect == nil {
		return // this implementation has no connection to close
	}
	node := unique("node")
	received := hearLaunches(t, h.Ports, node)
	launch(t, h.Ports, node, "job-a", "a1")
	launch(t, h.Ports, node, "job-b", "b1")
	wantLaunches(t, received, "a1", "b1")
	var want []string
	for i := range 30 {
		want = append(want, fmt.Sprint("a", i+2))
	}
	published := make(chan error, 1)
	go func() {
		ctx := timeout(t)
		for i, data := range want {
			m := broker.Message{Subject: events.LaunchSubject(ident.NodeID(node), ident.JobID(fmt.Sprint("job-", i))), Data: []byte(data)}
			for {
				if _, err := h.Ports.Log.Publish(ctx, m); err == nil {
					break // otherwise the connection was closed in between
				}
				if ctx.Err() != nil {
					published <- ctx.Err()
					return
				}
			}
		}
		published <- nil
	}()
	h.Reconnect()
	h.Reconnect()
	must(t, <-published)
	wantLaunches(t, received, want...)
}

func watchConnection(t *testing.T, h Harness) {
	states := make(chan bool, 100)
	background(t, func(ctx context.Context) error {
		return h.Ports.Signals.Watch(ctx, func(connected bool) { states <- connected })
	})
	if !next(t, states, "the state at once") {
		t.Fatal("begins disconnected")
	}
	if h.Reconnect == nil {
		return
	}
	h.Reconnect()
	if next(t, states, "the cut") {
		t.Error("the closed connection was not reported")
	}
	if !next(t, states, "the reconnect") {
		t.Error("the reconnect was not reported")
	}
}
