package jetstream_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
)

func TestWatchDetectsKeysDeletedWithoutTrace(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.One(t)
	b := s.Ports.Buckets.Bucket(events.BucketJobs)
	for _, key := range []string{"a", "b"} {
		_, err := b.Save(jetstreamtest.Within(t, jetstreamtest.Patience), key, []byte("x"), 0)
		jetstreamtest.Must(t, err)
	}
	seen := make(chan string, 100)
	background(t, func(ctx context.Context) error {
		return b.Watch(ctx, func(k string, v []byte, rev uint64) {
			seen <- fmt.Sprintf("%s=%s removed=%v revision=%v", k, v, v == nil, rev > 0)
		}, func() { seen <- "listed" })
	})
	for _, want := range []string{"a=x removed=false revision=true", "b=x removed=false revision=true", "listed"} {
		if got := next(t, seen, want); got != want {
			t.Fatalf("seen %q, want %q", got, want)
		}
	}
	// As if the record of a deletion had expired while the watcher was disconnected.
	_, j := raw(t, s.URL())
	st, err := j.Stream(jetstreamtest.Within(t, jetstreamtest.Patience), "KV_"+events.BucketJobs)
	jetstreamtest.Must(t, err)
	jetstreamtest.Must(t, st.Purge(jetstreamtest.Within(t, jetstreamtest.Patience), js.WithPurgeSubject("$KV.jobs.a")))
	s.Reconnect(t)
	if got := next(t, seen, "a is removed"); got != "a= removed=true revision=true" {
		t.Fatalf("seen %q, want that a is removed and nothing of b", got)
	}
	// The revisions of a recreated bucket start again.
	jetstreamtest.Must(t, j.DeleteStream(jetstreamtest.Within(t, jetstreamtest.Patience), "KV_"+events.BucketJobs))
	jetstreamtest.Must(t, s.Conn.Ensure(jetstreamtest.Within(t, jetstreamtest.Patience), 1))
	_, err = b.Save(jetstreamtest.Within(t, jetstreamtest.Patience), "c", []byte("y"), 0)
	jetstreamtest.Must(t, err)
	got := map[string]bool{}
	for range 2 {
		got[next(t, seen, "after the bucket was made anew")] = true
	}
	if !got["b= removed=true revision=true"] || !got["c=y removed=false revision=true"] {
		t.Errorf("seen %v, want b removed and c present", got)
	}
}

// TestWatchOfAnOldCopy: recurring revisions are not mistaken for those seen before.
func TestWatchOfAnOldCopy(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.One(t)
	b := s.Ports.Buckets.Bucket(events.BucketNodes)
	save := func(key, value string, revision uint64) uint64 {
		t.Helper()
		revision, err := b.Save(jetstreamtest.Within(t, jetstreamtest.Patience), key, []byte(value), revision)
		jetstreamtest.Must(t, err)
		return revision
	}
	seen := make(chan string, 100)
	background(t, func(ctx context.Context) error {
		return b.Watch(ctx, func(k string, v []byte, _ uint64) { seen <- fmt.Sprintf("%s=%s", k, v) }, nil)
	})
	want := func(all ...string) {
		t.Helper()
		for range all {
			got := next(t, seen, fmt.Sprint(all))
			if !slices.Contains(all, got) {
				t.Fatalf("seen %q, want %q", got, all)
			}
		}
	}
	first := save("a", "1", 0)
	want("a=1")
	dir, old := s.Options[0].StoreDir, t.TempDir()
	s.Stop(0)
	jetstreamtest.Must(t, os.CopyFS(old, os.DirFS(dir)))
	s.Start(t, 0)
	jetstreamtest.Retry(t, "save after the restart", func(ctx context.Context) error {
		_, err := b.Save(ctx, "a", []byte("2"), first)
		return err
	})
	save("c", "3", 0)
	want("a=2", "c=3")
	s.Stop(0)
	jetstreamtest.Must(t, os.RemoveAll(dir))
	jetstreamtest.Must(t, os.CopyFS(dir, os.DirFS(old)))
	s.Start(t, 0)
	want("a=1", "c=")
}

func TestFollowRestartsOnAnotherStreamOfTheSameName(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.One(t)
	publish := func(word string) {
		_, err := s.Ports.Log.Publish(jetstreamtest.Within(t, jetstreamtest.Patience), broker.Message{Subject: fact("job-a"), Data: []byte(word)})
		jetstreamtest.Must(t, err)
	}
	publish("1")
	publish("2")
	seen := make(chan string, 100)
	background(t, func(ctx context.Context) error {
		f := broker.Follow{Stream: events.StreamFacts, Subjects: []string{events.AllFacts}, Start: broker.FromFirst}
		return s.Ports.Log.Follow(ctx, f, func(m broker.Stored) error { seen <- string(m.Data); return nil }, nil)
	})
	_, _ = next(t, seen, "1"), next(t, seen, "2")
	_, j := raw(t, s.URL())
	jetstreamtest.Must(t, j.DeleteStream(jetstreamtest.Within(t, jetstreamtest.Patience), events.StreamFacts))
	jetstreamtest.Must(t, s.Conn.Ensure(jetstreamtest.Within(t, jetstreamtest.Patience), 1))
	publish("3")
	if got := next(t, seen, "3"); got != "3" {
		t.Errorf("got %q", got)
	}
}

// TestMessageIsKeptForItsTTL, and others as long as their stream keeps them.
func TestMessageIsKeptForItsTTL(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.One(t)
	subject := func(job ident.JobID) string { return events.LaunchSubject("node-a", job) }
	publish := func(job ident.JobID, ttl time.Duration) broker.Message {
		return broker.Message{Subject: subject(job), Data: []byte("x"), TTL: ttl}
	}
	_, err := s.Ports.Log.Publish(jetstreamtest.Within(t, jetstreamtest.Patience), publish("job-a", 0))
	jetstreamtest.Must(t, err)
	jetstreamtest.Must(t, s.Ports.Log.PublishAll(jetstreamtest.Within(t, jetstreamtest.Patience), []broker.Message{publish("job-b", 0), publish("job-b", time.Second), publish("job-c", 0)}))
	jetstreamtest.Await(t, "the message goes", func() bool {
		_, err := s.Ports.Log.Last(jetstreamtest.Within(t, jetstreamtest.Patience), events.StreamLaunches, subject("job-b"))
		return errcode.Of(err) == errcode.NotFound
	})
	for _, job := range []ident.JobID{"job-a", "job-c"} {
		if _, err := s.Ports.Log.Last(jetstreamtest.Within(t, jetstreamtest.Patience), events.StreamLaunches, subject(job)); err != nil {
			t.Errorf("%s: %v", job, err)
		}
	}
}

func TestConsumerTakesOtherSubjects(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.One(t)
	consume := func(subjects ...string) (chan string, func() error) {
		seen := make(chan string, 100)
		return seen, background(t, func(ctx context.Context) error {
			k := broker.Consumer{Stream: events.StreamFacts, Durable: "test", Subjects: subjects}
			return s.Ports.Log.Consume(ctx, k, func(d broker.Delivery) { d.Ack(); seen <- string(d.Data) })
		})
	}
	publish := func(entity, word string) {
		_, err := s.Ports.Log.Publish(jetstreamtest.Within(t, jetstreamtest.Patience), broker.Message{Subject: fact(entity), Data: []byte(word)})
		jetstreamtest.Must(t, err)
	}
	seen, stop := consume(events.FamilySubject(events.FamilyJob, "job-a"))
	publish("job-a", "a1")
	if got := next(t, seen, "a1"); got != "a1" {
		t.Fatalf("got %q", got)
	}
	_ = stop()
	seen, _ = consume(events.FamilySubject(events.FamilyJob, "job-a"), events.FamilySubject(events.FamilyJob, "job-b"))
	// The server may skip a message that is published while it changes the subjects.
	_, j := raw(t, s.URL())
	jetstreamtest.Await(t, "the consumer has both subjects", func() bool {
		c, err := j.Consumer(jetstreamtest.Within(t, jetstreamtest.Patience), events.StreamFacts, "test")
		jetstreamtest.Must(t, err)
		return len(c.CachedInfo().Config.FilterSubjects) == 2
	})
	publish("job-b", "b1")
	if got := next(t, seen, "b1"); got != "b1" {
		t.Fatalf("got %q", got)
	}
}

func TestNoMoreThanParallelAreUnsettled(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.One(t)
	const parallel, messages = 3, 30
	var now, most atomic.Int64
	seen := make(chan func(), messages)
	background(t, func(ctx context.Context) error {
		k := broker.Consumer{Stream: events.StreamFacts, Durable: "test", Subjects: []string{events.AllFacts}, Parallel: parallel, AckWait: jetstreamtest.Patience}
		return s.Ports.Log.Consume(ctx, k, func(d broker.Delivery) {
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			seen <- func() { now.Add(-1); d.Ack() } // settled after the handler has returned
		})
	})
	for i := range messages {
		_, err := s.Ports.Log.Publish(jetstreamtest.Within(t, jetstreamtest.Patience), broker.Message{Subject: fact("job-a"), Data: []byte(strconv.Itoa(i))})
		jetstreamtest.Must(t, err)
	}
	held := []func(){}
	for i := range messages {
		held = append(held, next(t, seen, "message "+strconv.Itoa(i)))
		if len(held) == parallel || i == messages-1 {
			for _, settle := range held {
				settle()
			}
			held = nil
		}
	}
	if m := most.Load(); m != parallel {
		t.Errorf("up to %d were unsettled at once, want %d", m, parallel)
	}
}

func TestCloseEndsBlockingMethods(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.One(t)
	c := s.Connect(t, nil)
	p := c.Ports()
	ended := make(chan error, 10)
	ready := make(chan struct{}, 10)
	stand := func() { ready <- struct{}{} }
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	blocking := []func() error{
		func() error { return p.Signals.Hear(ctx, "a", "", func(string, []byte) {}, stand) },
		func() error {
			return p.Log.Follow(ctx, broker.Follow{Stream: events.StreamFacts, Subjects: []string{events.AllFacts}}, func(broker.Stored) error { return nil }, stand)
		},
		func() error {
			return p.Buckets.Bucket(events.BucketJobs).Watch(ctx, func(string, []byte, uint64) {}, stand)
		},
		func() error { return p.Signals.Watch(ctx, func(bool) { stand() }) },
		func() error {
			stand()
			return p.Log.Consume(ctx, broker.Consumer{Stream: events.StreamFacts, Durable: "d", Subjects: []string{events.AllFacts}}, func(broker.Delivery) {})
		},
		func() error {
			stand()
			return p.Signals.Launches(ctx, events.StreamLaunches, events.LaunchSubject("n", "*"), func(broker.Stored) {})
		},
		func() error {
			stand()
			return p.Calls.Serve(ctx, "b", "", func(context.Context, []byte) ([]byte, error) { return nil, nil })
		},
	}
	for _, run := range blocking {
		go func() { ended <- run() }()
		next(t, ready, "it blocks")
	}
	began := time.Now()
	c.Close()
	for range blocking {
		jetstreamtest.WantCode(t, next(t, ended, "a blocking method ends with the connection"), errcode.Unavailable)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("closing took %v", took)
	}
	jetstreamtest.WantCode(t, p.Signals.Send("a", nil), errcode.Unavailable)
}
