package jetstream_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
	"github.com/regroup-io/regroup/jetstream/server"
)

// raw returns a connection of another program, to inspect and to damage the adapter's streams.
func raw(t *testing.T, url string) (*nats.Conn, js.JetStream) {
	t.Helper()
	nc, err := nats.Connect(url, nats.Timeout(jetstreamtest.Patience))
	jetstreamtest.Must(t, err)
	t.Cleanup(nc.Close)
	j, err := js.New(nc)
	jetstreamtest.Must(t, err)
	return nc, j
}

func TestVerifyReportsEveryDifference(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.One(t)
	jetstreamtest.Must(t, s.Conn.Verify(jetstreamtest.Within(t, jetstreamtest.Patience)))
	_, j := raw(t, s.URL())
	ctx := jetstreamtest.Within(t, jetstreamtest.Patience)
	facts, err := j.Stream(ctx, events.StreamFacts)
	jetstreamtest.Must(t, err)
	cfg := facts.CachedInfo().Config
	cfg.MaxAge, cfg.MaxBytes = time.Hour, 1<<20
	_, err = j.UpdateStream(ctx, cfg)
	jetstreamtest.Must(t, err)
	jobs, err := j.Stream(ctx, "KV_"+events.BucketJobs)
	jetstreamtest.Must(t, err)
	cfg = jobs.CachedInfo().Config
	cfg.AllowDirect = true
	_, err = j.UpdateStream(ctx, cfg)
	jetstreamtest.Must(t, err)
	jetstreamtest.Must(t, j.DeleteStream(ctx, events.StreamSpans))

	err = s.Conn.Verify(ctx)
	jetstreamtest.WantCode(t, err, errcode.Invalid)
	for _, want := range []string{
		"stream REGROUP_EVT: max_age is 1h0m0s, want 168h0m0s",
		"stream REGROUP_EVT: max_bytes is 1048576, want 1073741824",
		"stream KV_jobs: allow_direct is true, want false",
		"stream REGROUP_SPAN does not exist",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	jetstreamtest.Must(t, s.Conn.Ensure(ctx, 1))
	jetstreamtest.Must(t, s.Conn.Verify(ctx))
	jetstreamtest.Must(t, s.Conn.Ensure(ctx, 1))
	jetstreamtest.WantCode(t, s.Conn.Ensure(ctx, 2), errcode.Invalid)
}

// TestDirectGetsAreOffEverywhere: on three servers direct gets returned an older value 14 to 22 %
// of the time straight after an acknowledged write.
func TestDirectGetsAreOffEverywhere(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.One(t)
	nc, j := raw(t, s.URL())
	names := j.StreamNames(jetstreamtest.Within(t, jetstreamtest.Patience))
	seen := 0
	for name := range names.Name() {
		seen++
		st, err := j.Stream(jetstreamtest.Within(t, jetstreamtest.Patience), name)
		jetstreamtest.Must(t, err)
		if st.CachedInfo().Config.AllowDirect {
			t.Errorf("stream %s allows direct gets", name)
		}
		_, err = nc.RequestWithContext(jetstreamtest.Within(t, jetstreamtest.Patience), "$JS.API.DIRECT.GET."+name, []byte(`{"seq":1}`))
		if !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("a direct get on %s was answered with %v, want no responder", name, err)
		}
	}
	jetstreamtest.Must(t, names.Err())
	if want := 5 + len(events.Services()); seen != want {
		t.Errorf("%d streams, want %d: five and a bucket for each service", seen, want)
	}
}

func TestReadersLeaveNoConsumerBehind(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.One(t)
	_, j := raw(t, s.URL())
	caught := make(chan struct{}, 2)
	stopFollow := background(t, func(ctx context.Context) error {
		return s.Ports.Log.Follow(ctx, broker.Follow{Stream: events.StreamFacts, Subjects: []string{events.AllFacts}}, func(broker.Stored) error { return nil },
			func() { caught <- struct{}{} })
	})
	stopWatch := background(t, func(ctx context.Context) error {
		return s.Ports.Buckets.Bucket(events.BucketJobs).Watch(ctx, func(string, []byte, uint64) {}, func() { caught <- struct{}{} })
	})
	next(t, caught, "first reader stands")
	next(t, caught, "second reader stands")
	count := func() int {
		n := 0
		for _, name := range []string{events.StreamFacts, "KV_" + events.BucketJobs} {
			st, err := j.Stream(jetstreamtest.Within(t, jetstreamtest.Patience), name)
			jetstreamtest.Must(t, err)
			n += st.CachedInfo().State.Consumers
		}
		return n
	}
	if n := count(); n != 2 {
		t.Fatalf("%d consumers while two read", n)
	}
	_, _ = stopFollow(), stopWatch()
	end := time.Now().Add(5 * time.Second) // less than the server's own timeout
	for count() != 0 {
		if time.Now().After(end) {
			t.Fatal("readers that ended left consumers behind")
		}
	}
}

func TestFullServerRefusesAndDoesNotHang(t *testing.T) {
	t.Parallel()
	server, err := server.Start(server.Options{StoreDir: t.TempDir(), Listen: "127.0.0.1:0", MaxStore: 1 << 20})
	jetstreamtest.Must(t, err)
	t.Cleanup(server.Shutdown)
	c, err := jetstream.Connect(jetstreamtest.Within(t, jetstreamtest.Patience), jetstream.ConnectOptions{Server: server})
	jetstreamtest.Must(t, err)
	t.Cleanup(c.Close)
	err = c.Ensure(jetstreamtest.Within(t, jetstreamtest.Patience), 1)
	jetstreamtest.WantCode(t, err, errcode.Unavailable)
	if !strings.Contains(err.Error(), "full") {
		t.Errorf("the reason is missing: %v", err)
	}
	// Streams without a reservation fill the store to its limit.
	_, j := raw(t, server.ClientURL())
	for name, subject := range map[string]string{events.StreamFacts: events.AllFacts, "KV_" + events.BucketJobs: "$KV." + events.BucketJobs + ".>"} {
		_, err := j.CreateStream(jetstreamtest.Within(t, jetstreamtest.Patience), js.StreamConfig{Name: name, Subjects: []string{subject}})
		jetstreamtest.Must(t, err)
	}
	p := c.Ports()
	subject := events.FactSubject("dev.regroup.job.a.v1", "job-a")
	fill := func() error {
		_, err := p.Log.Publish(jetstreamtest.Within(t, jetstreamtest.Patience), broker.Message{Subject: subject, Data: make([]byte, 64<<10)})
		return err
	}
	for range 64 {
		if err = fill(); err != nil {
			break
		}
	}
	jetstreamtest.WantCode(t, err, errcode.Unavailable)
	if !strings.Contains(err.Error(), "full") {
		t.Errorf("the reason is missing: %v", err)
	}
	began := time.Now()
	_, err = p.Buckets.Bucket(events.BucketJobs).Save(jetstreamtest.Within(t, jetstreamtest.Patience), "job-a", make([]byte, 64<<10), 0)
	jetstreamtest.WantCode(t, err, errcode.Unavailable)
	if took := time.Since(began); took > jetstreamtest.Patience/2 {
		t.Errorf("the refusal took %v", took)
	}
	m, err := p.Log.Last(jetstreamtest.Within(t, jetstreamtest.Patience), events.StreamFacts, subject)
	jetstreamtest.Must(t, err) // stored data can still be read
	if len(m.Data) != 64<<10 {
		t.Errorf("read %d bytes", len(m.Data))
	}
}

func TestInvalidOptionsAreReported(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]server.Options{
		"StoreDir is empty":     {},
		"client address":        {StoreDir: t.TempDir(), Listen: "nonsense"},
		"port must be a number": {StoreDir: t.TempDir(), Listen: "127.0.0.1:http"},
		"has no listen address": {StoreDir: t.TempDir(), Cluster: server.Cluster{Routes: []string{"127.0.0.1:1"}}},
		"no such file":          {StoreDir: t.TempDir(), ConfigFile: filepath.Join(t.TempDir(), "absent.conf")},
	} {
		_, err := server.Start(o)
		jetstreamtest.WantCode(t, err, errcode.Invalid)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	_, err := jetstream.Connect(jetstreamtest.Within(t, jetstreamtest.Patience), jetstream.ConnectOptions{})
	jetstreamtest.WantCode(t, err, errcode.Invalid)
	_, err = jetstream.Connect(jetstreamtest.Within(t, 1500*time.Millisecond), jetstream.ConnectOptions{URL: "nats://127.0.0.1:1"})
	jetstreamtest.WantCode(t, err, errcode.Unavailable)
	if !strings.Contains(err.Error(), "127.0.0.1:1") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("the address or the reason is missing: %v", err)
	}
}

// TestFactsOfOneJobDoNotDisplaceOthers: a job that publishes ever more displaces its own older
// facts, never another job's.
func TestFactsOfOneJobDoNotDisplaceOthers(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.One(t)
	_, j := raw(t, s.URL())
	stream, err := j.Stream(jetstreamtest.Within(t, jetstreamtest.Patience), events.StreamFacts)
	jetstreamtest.Must(t, err)
	cfg := stream.CachedInfo().Config
	most := cfg.MaxMsgsPerSubject
	if most <= 0 {
		t.Fatal("the facts of one job are not bounded")
	}
	quiet, loud := events.FactSubject("dev.regroup.round.sealed.v1", "quiet"), events.FactSubject("dev.regroup.round.sealed.v1", "loud")
	_, err = j.Publish(jetstreamtest.Within(t, jetstreamtest.Patience), quiet, []byte("{}"))
	jetstreamtest.Must(t, err)
	for left := most + 1000; left > 0; {
		batch := min(left, 1000) // the client refuses to have more than 4,000 in flight
		for range batch {
			_, err := j.PublishAsync(loud, []byte("{}"))
			jetstreamtest.Must(t, err)
		}
		left -= batch
		select {
		case <-j.PublishAsyncComplete():
		case <-time.After(jetstreamtest.Patience):
			t.Fatal("not stored in time")
		}
	}
	info, err := stream.Info(jetstreamtest.Within(t, jetstreamtest.Patience), js.WithSubjectFilter(events.AllFacts))
	jetstreamtest.Must(t, err)
	if got := info.State.Subjects; got[quiet] != 1 || got[loud] != uint64(most) {
		t.Errorf("the log holds %d of the quiet job and %d of the loud one, want 1 and %d", got[quiet], got[loud], most)
	}
}

func TestVerifyReportsFewerReplicas(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.Three(t)
	jetstreamtest.Must(t, s.Conn.Verify(jetstreamtest.Within(t, jetstreamtest.Patience)))
	_, j := raw(t, s.URL())
	st, err := j.Stream(jetstreamtest.Within(t, jetstreamtest.Patience), "KV_jobs")
	jetstreamtest.Must(t, err)
	cfg := st.CachedInfo().Config
	cfg.Replicas = 1
	_, err = j.UpdateStream(jetstreamtest.Within(t, jetstreamtest.Patience), cfg)
	jetstreamtest.Must(t, err)
	err = s.Conn.Verify(jetstreamtest.Within(t, jetstreamtest.Patience))
	jetstreamtest.WantCode(t, err, errcode.Invalid)
	if want := "stream KV_jobs: replicas is 1, want 3 as others have"; !strings.Contains(err.Error(), want) {
		t.Errorf("%q is not in: %v", want, err)
	}
	jetstreamtest.Must(t, s.Conn.Ensure(jetstreamtest.Within(t, jetstreamtest.Patience), 3))
	jetstreamtest.Must(t, s.Conn.Verify(jetstreamtest.Within(t, jetstreamtest.Patience)))

	jetstreamtest.Must(t, j.DeleteStream(jetstreamtest.Within(t, jetstreamtest.Patience), events.StreamCommands)) // retention cannot be changed
	commands := js.StreamConfig{Name: events.StreamCommands, Subjects: []string{events.AllCommands}, Replicas: 3}
	_, err = j.CreateStream(jetstreamtest.Within(t, jetstreamtest.Patience), commands)
	jetstreamtest.Must(t, err)
	err = s.Conn.Verify(jetstreamtest.Within(t, jetstreamtest.Patience))
	if want := "stream REGROUP_CMD: retention is Limits, want WorkQueue"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%q is not in: %v", want, err)
	}
}
