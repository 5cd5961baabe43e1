package eventstest

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
)

const (
	// short is an AckWait for tests in which it passes.
	short = 400 * time.Millisecond
	// ample is one for tests in which it must not pass before a message is settled, also on a busy
	// machine.
	ample = 2 * time.Second
)

func consume(t *testing.T, p broker.Ports, durable, entity string, wait time.Duration, handle func(broker.Delivery)) (stop func()) {
	t.Helper()
	return background(t, func(ctx context.Context) error {
		return p.Log.Consume(ctx, broker.Consumer{Stream: events.StreamFacts, Durable: durable, Subjects: all(entity), AckWait: wait}, handle)
	})
}

func consumeShared(t *testing.T, h Harness) {
	entity, durable := unique("shared"), unique("durable")
	const messages = 40
	for i := range messages / 2 { // stored before the first consumer starts
		put(t, h.Ports, entity, "a", strconv.Itoa(i))
	}
	seen := make(chan string, 10*messages)
	handle := func(d broker.Delivery) {
		seen <- string(d.Data)
		d.Ack()
	}
	consume(t, h.Ports, durable, entity, patience, handle)
	consume(t, h.Ports, durable, entity, patience, handle)
	for i := messages / 2; i < messages; i++ {
		put(t, h.Ports, entity, "b", strconv.Itoa(i))
	}
	got := map[string]int{}
	for range messages {
		got[next(t, seen, "message to one of the two")]++
	}
	for i := range messages {
		if got[strconv.Itoa(i)] != 1 {
			t.Errorf("message %d was delivered %d times", i, got[strconv.Itoa(i)])
		}
	}
}

func consumeRetryDrop(t *testing.T, h Harness) {
	entity := unique("settle")
	type delivery struct {
		data    string
		attempt int
	}
	seen := make(chan delivery, 100)
	const pause = ample * 3 / 2
	consume(t, h.Ports, unique("durable"), entity, ample, func(d broker.Delivery) {
		seen <- delivery{string(d.Data), d.Attempt}
		switch {
		case string(d.Data) == "drop":
			d.Drop("the suite says so")
		case d.Attempt < 2:
			d.Retry(pause)
		default:
			d.Ack()
		}
	})
	put(t, h.Ports, entity, "a", "drop")
	if d := next(t, seen, "first delivery"); d != (delivery{"drop", 1}) {
		t.Fatalf("first delivery is %v", d)
	}
	begin := time.Now()
	put(t, h.Ports, entity, "a", "retry")
	if d := next(t, seen, "second delivery"); d != (delivery{"retry", 1}) {
		t.Fatalf("second delivery is %v", d)
	}
	// By the time of the retry a dropped message would have been redelivered too.
	if d := next(t, seen, "retry"); d != (delivery{"retry", 2}) {
		t.Fatalf("third delivery is %v", d)
	}
	if took := time.Since(begin); took < pause-short/4 {
		t.Errorf("the retry came after %s, want %s", took, pause)
	}
}

func consumeAckWait(t *testing.T, h Harness) {
	entity := unique("ackwait")
	attempts := make(chan int, 100)
	put(t, h.Ports, entity, "a", "x")
	begin := time.Now()
	consume(t, h.Ports, unique("durable"), entity, short, func(d broker.Delivery) {
		attempts <- d.Attempt
		if d.Attempt == 3 {
			d.Ack()
		}
	})
	for want := 1; want <= 3; want++ {
		if got := next(t, attempts, "delivery "+strconv.Itoa(want)); got != want {
			t.Fatalf("delivery %d says attempt %d", want, got)
		}
	}
	if took := time.Since(begin); took < 2*short-short/4 {
		t.Errorf("three deliveries took %s, want at least two AckWaits of %s", took, short)
	}
}

func consumeParallel(t *testing.T, h Harness) {
	entity := unique("parallel")
	const messages, parallel = 6, 2
	var mu sync.Mutex
	held, most := 0, 0
	seen := make(chan broker.Delivery, messages)
	for i := range messages {
		put(t, h.Ports, entity, "a", strconv.Itoa(i))
	}
	background(t, func(ctx context.Context) error {
		c := broker.Consumer{Stream: events.StreamFacts, Durable: unique("durable"), Subjects: all(entity), AckWait: patience, Parallel: parallel}
		return h.Ports.Log.Consume(ctx, c, func(d broker.Delivery) {
			mu.Lock()
			held++
			most = max(most, held)
			mu.Unlock()
			seen <- d // settled later by another goroutine
		})
	})
	var open []broker.Delivery
	for range messages {
		if len(open) == parallel { // no more may arrive before one is settled
			mu.Lock()
			held--
			mu.Unlock()
			open[0].Ack()
			open = open[1:]
		}
		open = append(open, next(t, seen, "message while a place is free"))
	}
	for _, d := range open {
		d.Ack()
	}
	mu.Lock()
	defer mu.Unlock()
	if most != parallel {
		t.Errorf("%d messages were unsettled at once, want %d", most, parallel)
	}
}

func consumeDurable(t *testing.T, h Harness) {
	entity, durable := unique("durable"), unique("durable")
	seen := make(chan string, 100)
	handle := func(d broker.Delivery) {
		d.Ack()
		seen <- string(d.Data)
	}
	stop := consume(t, h.Ports, durable, entity, ample, handle)
	put(t, h.Ports, entity, "a", "1")
	if got := next(t, seen, "the first"); got != "1" {
		t.Fatalf("got %q", got)
	}
	stop()
	put(t, h.Ports, entity, "a", "2")
	consume(t, h.Ports, durable, entity, ample, handle)
	put(t, h.Ports, entity, "a", "3")
	got := []string{next(t, seen, "after the restart"), next(t, seen, "after the restart")}
	slices.Sort(got) // the order of deliveries of a shared consumer is unspecified
	if !slices.Equal(got, []string{"2", "3"}) {
		t.Fatalf("after the restart got %q, want 2 and 3", got)
	}
}

func consumeCommands(t *testing.T, h Harness) {
	id := unique("id")
	m := broker.Message{Subject: events.CommandSubject(events.JobStop{}.Type()), ID: id, Header: map[string][]string{"ce-id": {id}}, Data: []byte("{}")}
	_, err := h.Ports.Log.Publish(timeout(t), m)
	must(t, err)
	_, err = h.Ports.Log.Last(timeout(t), events.StreamCommands, m.Subject)
	must(t, err)
	done := make(chan broker.Stored, 10)
	var once sync.Once
	background(t, func(ctx context.Context) error {
		c := broker.Consumer{Stream: events.StreamCommands, Durable: events.ServiceRegistry, Subjects: []string{events.AllJobCommands}}
		return h.Ports.Log.Consume(ctx, c, func(d broker.Delivery) {
			d.Ack()
			once.Do(func() { done <- d.Stored })
		})
	})
	if got := next(t, done, "the command"); !slices.Equal(got.Header["ce-id"], []string{id}) || string(got.Data) != "{}" {
		t.Fatalf("got command %+v", got)
	}
	eventually(t, "a settled command leaves the stream", func() bool {
		_, err := h.Ports.Log.Last(timeout(t), events.StreamCommands, m.Subject)
		return errcode.Of(err) == errcode.NotFound
	})
}

func consumeReconnect(t *testing.T, h Harness) {
	if h.Reconnect == nil {
		return // this implementation has no connection to close
	}
	entity := unique("again")
	seen := make(chan string, 100)
	consume(t, h.Ports, unique("durable"), entity, short, func(d broker.Delivery) {
		d.Ack()
		seen <- string(d.Data)
	})
	put(t, h.Ports, entity, "a", "before")
	if got := next(t, seen, "before the cut"); got != "before" {
		t.Fatalf("got %q", got)
	}
	h.Reconnect()
	put(t, h.Ports, entity, "a", "after")
	for next(t, seen, "after the cut") != "after" { // "before" may be redelivered if its acknowledgement was lost
	}
}
