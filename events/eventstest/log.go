package eventstest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/tracing"
)

const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// put publishes data as a job fact of this kind and returns its position.
func put(t *testing.T, p broker.Ports, entity, kind, data string) uint64 {
	t.Helper()
	seq, err := p.Log.Publish(timeout(t), broker.Message{Subject: subject(entity, kind), ID: unique("id"), Data: []byte(data)})
	must(t, err)
	return seq
}

func subject(entity, kind string) string {
	return events.FactSubject(events.Type("dev.regroup.job."+kind+".v1"), entity)
}

func all(entity string) []string {
	return []string{events.FamilySubject(events.FamilyJob, entity)}
}

func follow(t *testing.T, p broker.Ports, f broker.Follow) (seen chan broker.Stored, caughtUp chan int) {
	t.Helper()
	seen, caughtUp = make(chan broker.Stored, 1000), make(chan int, 1000)
	f.Stream = events.StreamFacts
	background(t, func(ctx context.Context) error {
		return p.Log.Follow(ctx, f, func(s broker.Stored) error { seen <- s; return nil }, func() { caughtUp <- len(seen) })
	})
	return seen, caughtUp
}

func wantData(t *testing.T, seen <-chan broker.Stored, want ...string) {
	t.Helper()
	for i, w := range want {
		if got := next(t, seen, "message "+w); string(got.Data) != w {
			t.Fatalf("message %d is %q, want %q", i, got.Data, w)
		}
	}
}

func logOrder(t *testing.T, h Harness) {
	entity := unique("order")
	var last uint64
	for i := range 10 {
		seq := put(t, h.Ports, entity, "k"+strconv.Itoa(i%3), strconv.Itoa(i))
		if seq <= last {
			t.Fatalf("sequence %d after %d", seq, last)
		}
		last = seq
	}
}

// logClock: the clock lies between the times of messages stored before and after the call, within
// the duration of the call.
func logClock(t *testing.T, h Harness) {
	entity := unique("clock")
	at := func() time.Time {
		put(t, h.Ports, entity, "a", "x")
		m, err := h.Ports.Log.Last(timeout(t), events.StreamFacts, subject(entity, "a"))
		must(t, err)
		return m.Time
	}
	for range 3 { // the first answer may be cached
		before := at()
		now, err := h.Ports.Clock.Now(timeout(t))
		must(t, err)
		if after := at(); now.Before(before.Add(-time.Second)) || now.After(after.Add(time.Second)) {
			t.Errorf("the clock shows %s between %s and %s", now, before, after)
		}
	}
}

func logTrace(t *testing.T, h Harness) {
	entity := unique("trace")
	ctx := tracing.NewContext(timeout(t), trace)
	m := broker.Message{Subject: subject(entity, "a"), Header: map[string][]string{"ce-id": {"1"}}, Data: []byte("x")}
	_, err := h.Ports.Log.Publish(ctx, m)
	must(t, err)
	got, err := h.Ports.Log.Last(timeout(t), events.StreamFacts, m.Subject)
	must(t, err)
	if v := got.Header[events.HeaderTrace]; !slices.Equal(v, []string{trace}) {
		t.Errorf("stored trace header is %q, want that of the context", v)
	}
	if v := got.Header["ce-id"]; !slices.Equal(v, []string{"1"}) {
		t.Errorf("stored header ce-id is %q, want 1", v)
	}
	if len(m.Header) != 1 {
		t.Errorf("Publish changed the caller's headers: %v", m.Header)
	}
	const carried = "00-11111111111111111111111111111111-2222222222222222-01"
	m.Header[events.HeaderTrace] = []string{carried}
	_, err = h.Ports.Log.Publish(ctx, m)
	must(t, err)
	got, err = h.Ports.Log.Last(timeout(t), events.StreamFacts, m.Subject)
	must(t, err)
	if v := got.Header[events.HeaderTrace]; !slices.Equal(v, []string{carried}) {
		t.Errorf("stored trace header is %q, want the one that the message carried", v)
	}
}

func logSameID(t *testing.T, h Harness) {
	entity, id := unique("same"), unique("id")
	m := broker.Message{Subject: subject(entity, "a"), ID: id, Data: []byte("first")}
	first, err := h.Ports.Log.Publish(timeout(t), m)
	must(t, err)
	m.Data = []byte("second")
	again, err := h.Ports.Log.Publish(timeout(t), m)
	must(t, err)
	if first != again {
		t.Errorf("the repeat is at %d, want %d: that of the first", again, first)
	}
	for range 2 { // no id = no de-duplication
		_, err = h.Ports.Log.Publish(timeout(t), broker.Message{Subject: subject(entity, "a"), Data: []byte("anonymous")})
		must(t, err)
	}
	seen, _ := follow(t, h.Ports, broker.Follow{Subjects: all(entity), Start: broker.FromFirst})
	wantData(t, seen, "first", "anonymous", "anonymous")
}

// logPublishAll publishes more messages than can be in flight at once, several to each subject.
func logPublishAll(t *testing.T, h Harness) {
	const many, subjects = 1500, 500
	entity := unique("many")
	all := make([]broker.Message, many)
	for i := range all {
		all[i] = broker.Message{Subject: subject(entity, "k"+strconv.Itoa(i%subjects)), ID: unique("id"), Data: []byte(strconv.Itoa(i))}
	}
	for range 2 { // the second time nothing is stored
		must(t, h.Ports.Log.PublishAll(timeout(t), all))
	}
	newest, seen := map[string]int{}, 0
	ctx, cancel := context.WithCancelCause(timeout(t))
	err := h.Ports.Log.Follow(ctx, broker.Follow{Stream: events.StreamFacts, Subjects: []string{events.FamilySubject(events.FamilyJob, entity)}, Start: broker.FromFirst}, func(s broker.Stored) error {
		n, err := strconv.Atoi(string(s.Data))
		if last, ok := newest[s.Subject]; err != nil || (ok && n < last) {
			t.Errorf("%s: %d after %d, %v", s.Subject, n, last, err)
		}
		newest[s.Subject] = n
		seen++
		return nil
	}, func() { cancel(errOver) })
	if !errors.Is(err, errOver) || seen != many || len(newest) != subjects {
		t.Errorf("%d messages on %d subjects, %v; want %d on %d", seen, len(newest), err, many, subjects)
	}
	must(t, h.Ports.Log.PublishAll(timeout(t), nil))
	wantCode(t, h.Ports.Log.PublishAll(timeout(t), []broker.Message{{Subject: "regroup.nowhere." + unique("x"), Data: []byte("x")}}), errcode.Unavailable)
	wantCode(t, h.Ports.Log.PublishAll(timeout(t), []broker.Message{all[0], {Subject: all[0].Subject, Data: huge()}}), errcode.TooLarge)
}

func logRefusals(t *testing.T, h Harness) {
	_, err := h.Ports.Log.Publish(timeout(t), broker.Message{Subject: subject(unique("huge"), "a"), Data: huge()})
	wantCode(t, err, errcode.TooLarge)
	_, err = h.Ports.Log.Publish(timeout(t), broker.Message{Subject: "regroup.nowhere." + unique("x"), Data: []byte("x")})
	wantCode(t, err, errcode.Unavailable)
}

func logLast(t *testing.T, h Harness) {
	entity := unique("last")
	_, err := h.Ports.Log.Last(timeout(t), events.StreamFacts, subject(entity, "a"))
	wantCode(t, err, errcode.NotFound)
	put(t, h.Ports, entity, "a", "1")
	put(t, h.Ports, entity, "a", "2")
	seq := put(t, h.Ports, entity, "b", "3")
	for sub, want := range map[string]string{
		subject(entity, "a"): "2",
		subject(entity, "b"): "3",
		all(entity)[0]:       "3",
	} {
		got, err := h.Ports.Log.Last(timeout(t), events.StreamFacts, sub)
		must(t, err)
		if string(got.Data) != want {
			t.Errorf("last of %s is %q, want %q", sub, got.Data, want)
		}
		if want == "3" && (got.Sequence != seq || got.Subject != subject(entity, "b") || got.Time.IsZero()) {
			t.Errorf("last of %s is %+v, want sequence %d with subject and time", sub, got, seq)
		}
	}
}

func logNext(t *testing.T, h Harness) {
	entity := unique("next")
	_, err := h.Ports.Log.Next(timeout(t), events.StreamFacts, all(entity)[0], 1)
	wantCode(t, err, errcode.NotFound)
	var at []uint64
	for _, data := range []string{"1", "2", "3"} {
		put(t, h.Ports, unique("other"), "a", "not for us")
		at = append(at, put(t, h.Ports, entity, "a", data))
	}
	from := uint64(0)
	for n, want := range []string{"1", "2", "3"} {
		got, err := h.Ports.Log.Next(timeout(t), events.StreamFacts, all(entity)[0], from)
		must(t, err)
		if string(got.Data) != want || got.Sequence != at[n] || got.Time.IsZero() {
			t.Errorf("from %d on there is %+v, want %s at %d", from, got, want, at[n])
		}
		from = got.Sequence + 1
	}
	_, err = h.Ports.Log.Next(timeout(t), events.StreamFacts, all(entity)[0], from)
	wantCode(t, err, errcode.NotFound)
}

func followFirst(t *testing.T, h Harness) {
	entity := unique("first")
	var seqs []uint64
	for i := range 5 {
		seqs = append(seqs, put(t, h.Ports, entity, "k"+strconv.Itoa(i%2), strconv.Itoa(i)))
	}
	put(t, h.Ports, unique("other"), "k0", "not for us")
	seen, caughtUp := follow(t, h.Ports, broker.Follow{Subjects: all(entity), Start: broker.FromFirst})
	if n := next(t, caughtUp, "caught up"); n != 5 {
		t.Errorf("caught up after %d messages, want 5", n)
	}
	put(t, h.Ports, entity, "k0", "5")
	for i := range 6 {
		s := next(t, seen, "message "+strconv.Itoa(i))
		if string(s.Data) != strconv.Itoa(i) || s.Subject != subject(entity, "k"+strconv.Itoa(i%2)) && i < 5 {
			t.Fatalf("message %d is %q on %s", i, s.Data, s.Subject)
		}
		if i < 5 && s.Sequence != seqs[i] {
			t.Errorf("message %d has sequence %d, want %d as published", i, s.Sequence, seqs[i])
		}
	}
	none(t, caughtUp, "caught up a second time")
}

func followNew(t *testing.T, h Harness) {
	entity := unique("new")
	put(t, h.Ports, entity, "a", "old")
	seen, caughtUp := follow(t, h.Ports, broker.Follow{Subjects: all(entity), Start: broker.FromNew})
	next(t, caughtUp, "caught up")
	put(t, h.Ports, entity, "a", "new")
	wantData(t, seen, "new")
}

func followSequence(t *testing.T, h Harness) {
	entity := unique("seq")
	put(t, h.Ports, entity, "a", "0")
	from := put(t, h.Ports, entity, "a", "1")
	put(t, h.Ports, entity, "b", "2")
	seen, caughtUp := follow(t, h.Ports, broker.Follow{Subjects: all(entity), Start: broker.FromSequence, Sequence: from})
	next(t, caughtUp, "caught up")
	wantData(t, seen, "1", "2")
	// Follow waits for a position that is not stored yet.
	ahead, caughtUp := follow(t, h.Ports, broker.Follow{Subjects: all(entity), Start: broker.FromSequence, Sequence: from + 2})
	next(t, caughtUp, "caught up at the end")
	put(t, h.Ports, entity, "b", "3")
	wantData(t, ahead, "3")
}

func followTime(t *testing.T, h Harness) {
	entity := unique("time")
	put(t, h.Ports, entity, "a", "0")
	first := put(t, h.Ports, entity, "a", "1")
	var since time.Time
	err := h.Ports.Log.Follow(timeout(t), broker.Follow{Stream: events.StreamFacts, Subjects: all(entity), Start: broker.FromSequence, Sequence: first}, func(s broker.Stored) error {
		since = s.Time
		return errEnough
	}, nil)
	if !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	put(t, h.Ports, entity, "b", "2")
	seen, caughtUp := follow(t, h.Ports, broker.Follow{Subjects: all(entity), Start: broker.FromTime, Since: since})
	next(t, caughtUp, "caught up")
	wantData(t, seen, "1", "2")
	// No message is that recent: it starts with the next one.
	ahead, caughtUp := follow(t, h.Ports, broker.Follow{Subjects: all(entity), Start: broker.FromTime, Since: since.Add(time.Hour)})
	next(t, caughtUp, "caught up at the end")
	put(t, h.Ports, entity, "b", "3")
	wantData(t, ahead, "3")
}

var errEnough = errors.New("enough")

func followError(t *testing.T, h Harness) {
	entity, enough := unique("enough"), errors.New("enough")
	put(t, h.Ports, entity, "a", "1")
	err := h.Ports.Log.Follow(timeout(t), broker.Follow{Stream: events.StreamFacts, Subjects: all(entity), Start: broker.FromFirst},
		func(broker.Stored) error { return enough }, nil)
	if !errors.Is(err, enough) {
		t.Fatalf("Follow returned %v, want its handler's error", err)
	}
}

func followReconnect(t *testing.T, h Harness) {
	if h.Reconnect == nil {
		return // this implementation has no connection to close
	}
	entity := unique("again")
	put(t, h.Ports, entity, "a", "0")
	seen, caughtUp := follow(t, h.Ports, broker.Follow{Subjects: all(entity), Start: broker.FromFirst})
	next(t, caughtUp, "caught up")
	for i := range 3 {
		h.Reconnect()
		put(t, h.Ports, entity, "a", strconv.Itoa(i+1))
	}
	wantData(t, seen, "0", "1", "2", "3")
	none(t, caughtUp, "caught up a second time")
}
