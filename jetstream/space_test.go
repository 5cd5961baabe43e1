package jetstream_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
)

// saveUntilRefused stores documents until the server refuses, and returns the stored ones and the
// refusal.
func saveUntilRefused(t *testing.T, b broker.Bucket, size int) (map[string]uint64, error) {
	t.Helper()
	stored := map[string]uint64{}
	for i := range 10_000 {
		key := fmt.Sprint("job-", i)
		rev, err := b.Save(jetstreamtest.Within(t, jetstreamtest.Patience), key, make([]byte, size), 0)
		if err != nil {
			return stored, err
		}
		stored[key] = rev
	}
	t.Fatal("nothing is ever full")
	return nil, nil
}

// wantWhole checks that exactly the acknowledged documents are stored.
func wantWhole(t *testing.T, b broker.Bucket, stored map[string]uint64, refused string) {
	t.Helper()
	for key, rev := range stored {
		if _, at, err := b.Load(jetstreamtest.Within(t, jetstreamtest.Patience), key); err != nil || at != rev {
			t.Errorf("%s is at %d (%v), was stored at %d", key, at, err, rev)
		}
	}
	_, _, err := b.Load(jetstreamtest.Within(t, jetstreamtest.Patience), refused)
	jetstreamtest.WantCode(t, err, errcode.NotFound)
}

// TestFullBucketRefusesAndRecovers: a bucket at its limit refuses with a clear error, keeps its
// contents, and accepts writes after something is deleted and purged. Facts are stored meanwhile:
// their stream drops the oldest instead.
func TestFullBucketRefusesAndRecovers(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.One(t)
	_, j := raw(t, s.URL())
	st, err := j.Stream(jetstreamtest.Within(t, jetstreamtest.Patience), "KV_"+events.BucketJobs)
	jetstreamtest.Must(t, err)
	cfg := st.CachedInfo().Config
	cfg.MaxBytes = 1 << 20
	_, err = j.UpdateStream(jetstreamtest.Within(t, jetstreamtest.Patience), cfg)
	jetstreamtest.Must(t, err)
	b := s.Ports.Buckets.Bucket(events.BucketJobs)
	stored, err := saveUntilRefused(t, b, 64<<10)
	jetstreamtest.WantCode(t, err, errcode.Unavailable)
	if !strings.Contains(err.Error(), "full") {
		t.Errorf("the reason is missing: %v", err)
	}
	refused := fmt.Sprint("job-", len(stored))
	wantWhole(t, b, stored, refused)
	// A change that shrinks the document must succeed: it frees space.
	rev, err := b.Save(jetstreamtest.Within(t, jetstreamtest.Patience), "job-0", []byte("ended"), stored["job-0"])
	if err != nil {
		jetstreamtest.Must(t, b.Delete(jetstreamtest.Within(t, jetstreamtest.Patience), "job-0", stored["job-0"]))
		rev, err = b.Save(jetstreamtest.Within(t, jetstreamtest.Patience), "job-0", []byte("ended"), 0)
	}
	jetstreamtest.Must(t, err)
	stored["job-0"] = rev
	rev, err = b.Save(jetstreamtest.Within(t, jetstreamtest.Patience), refused, []byte("small"), 0)
	jetstreamtest.Must(t, err)
	stored[refused] = rev
	wantWhole(t, b, stored, "job-none")
	_, err = s.Ports.Log.Publish(jetstreamtest.Within(t, jetstreamtest.Patience), broker.Message{Subject: fact("job-a"), Data: []byte("told")})
	jetstreamtest.Must(t, err)
}

// TestFullStreams: a full stream of facts drops the oldest, one of commands refuses: no accepted
// command is lost.
func TestFullStreams(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.One(t)
	_, j := raw(t, s.URL())
	for _, name := range []string{events.StreamFacts, events.StreamCommands} {
		st, err := j.Stream(jetstreamtest.Within(t, jetstreamtest.Patience), name)
		jetstreamtest.Must(t, err)
		cfg := st.CachedInfo().Config
		cfg.MaxBytes = 256 << 10
		_, err = j.UpdateStream(jetstreamtest.Within(t, jetstreamtest.Patience), cfg)
		jetstreamtest.Must(t, err)
	}
	for i := range 16 {
		_, err := s.Ports.Log.Publish(jetstreamtest.Within(t, jetstreamtest.Patience), broker.Message{Subject: fact("job-a"), ID: fmt.Sprint(i), Data: make([]byte, 32<<10)})
		jetstreamtest.Must(t, err)
	}
	command := broker.Message{Subject: events.CommandSubject("dev.regroup.job.submit.v1"), Data: make([]byte, 32<<10)}
	var err error
	n := 0
	for ; err == nil && n < 16; n++ {
		_, err = s.Ports.Log.Publish(jetstreamtest.Within(t, jetstreamtest.Patience), command)
	}
	jetstreamtest.WantCode(t, err, errcode.Unavailable)
	if !strings.Contains(err.Error(), "full") {
		t.Errorf("the reason is missing: %v", err)
	}
	st, err := j.Stream(jetstreamtest.Within(t, jetstreamtest.Patience), events.StreamCommands)
	jetstreamtest.Must(t, err)
	if got := st.CachedInfo().State.Msgs; int(got) != n-1 {
		t.Errorf("%d commands are stored, %d were acknowledged", got, n-1)
	}
}

// TestSlowReaderIsNoObstacle: a reader that stops reading is disconnected by the server or falls
// behind; others are not delayed, and it gets everything once it reads again.
func TestSlowReaderIsNoObstacle(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.One(t)
	slow := s.Connect(t, nil).Ports()
	const messages, size = 400, 64 << 10
	hold, got := make(chan struct{}), make(chan string, messages)
	stood := make(chan struct{}, 1)
	background(t, func(ctx context.Context) error {
		return slow.Log.Follow(ctx, broker.Follow{Stream: events.StreamFacts, Subjects: []string{events.AllFacts}, Start: broker.FromFirst}, func(m broker.Stored) error {
			<-hold
			got <- m.Subject
			return nil
		}, func() { stood <- struct{}{} })
	})
	next(t, stood, "the reader stands")
	began := time.Now()
	for i := range messages {
		_, err := s.Ports.Log.Publish(jetstreamtest.Within(t, jetstreamtest.Patience), broker.Message{Subject: fact(fmt.Sprint("job-", i)), Data: make([]byte, size)})
		jetstreamtest.Must(t, err)
	}
	t.Logf("%d MiB were stored in %v past a reader that stood still", messages*size>>20, time.Since(began).Round(time.Millisecond))
	close(hold)
	for i := range messages {
		if at := next(t, got, "the slow reader reads on"); at != fact(fmt.Sprint("job-", i)) {
			t.Fatalf("message %d is %s", i, at)
		}
	}
}
