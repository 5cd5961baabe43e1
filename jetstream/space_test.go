package jetstream_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
)

// saveUntilRefused stores documents until the server refuses, and returns the stored ones and the
// refusal.
func saveUntilRefused(t *testing.T, b broker.Bucket, size int) (map[string]uint64, error) {
	t.Helper()
	stored := map[string]uint64{}
	for i := range 10_000 {
		key := fmt.Sprint("job-", i)
		rev, err := b.Save(within(t, patience), key, make([]byte, size), 0)
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
		if _, at, err := b.Load(within(t, patience), key); err != nil || at != rev {
			t.Errorf("%s is at %d (%v), was stored at %d", key, at, err, rev)
		}
	}
	_, _, err := b.Load(within(t, patience), refused)
	wantCode(t, err, errcode.NotFound)
}

// TestFullBucketRefusesAndRecovers: a bucket at its limit refuses with a clear error, keeps its
// contents, and accepts writes after something is deleted and purged. Facts are stored meanwhile:
// their stream drops the oldest instead.
func TestFullBucketRefusesAndRecovers(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.One(t)
	_, j := raw(t, s.URL())
	st, err := j.Stream(within(t, patience), "KV_"+events.BucketJobs)
	must(t, err)
	cfg := st.CachedInfo().Config
	cfg.MaxBytes = 1 << 20
	_, err = j.UpdateStream(within(t, patience), cfg)
	must(t, err)
	b := s.Ports.Buckets.Bucket(events.BucketJobs)
	stored, err := saveUntilRefused(t, b, 64<<10)
	wantCode(t, err, errcode.Unavailable)
	if !strings.Contains(err.Error(), "full") {
		t.Errorf("the reason is missing: %v", err)
	}
	refused := fmt.Sprint("job-", len(stored))
	wantWhole(t, b, stored, refused)
	// A change that shrinks the document must succeed: it frees space.
	rev, err := b.Save(within(t, patience), "job-0", []byte("ended"), stored["job-0"])
	if err != nil {
		must(t, b.Delete(within(t, patience), "job-0", stored["job-0"]))
		rev, err = b.Save(within(t, patience), "job-0", []byte("ended"), 0)
	}
	must(t, err)
	stored["job-0"] = rev
	rev, err = b.Save(within(t, patience), refused, []byte("small"), 0)
	must(t, err)
	stored[refused] = rev
	wantWhole(t, b, stored, "job-none")
	_, err = s.Ports.Log.Publish(within(t, patience), broker.Message{Subject: fact("job-a"), Data: []byte("told")})
	must(t, err)
}

// TestFullStreams: a full stream of facts drops the oldest, one of commands refuses: no accepted
// command is lost.
func TestFullStreams(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.One(t)
	_, j := raw(t, s.URL())
	for _, name := range []string{events.StreamFacts, events.StreamCommands} {
		st, err := j.Stream(within(t, patience), name)
		must(t, err)
		cfg := st.CachedInfo().Config
		cfg.MaxBytes = 256 << 10
		_, err = j.UpdateStream(within(t, patience), cfg)
		must(t, err)
	}
	for i := range 16 {
		_, err := s.Ports.Log.Publish(within(t, patience), broker.Message{Subject: fact("job-a"), ID: fmt.Sprint(i), Data: make([]byte, 32<<10)})
		must(t, err)
	}
	command := broker.Message{Subject: events.CommandSubject("dev.regroup.job.submit.v1"), Data: make([]byte, 32<<10)}
	var err error
	n := 0
	for ; err == nil && n < 16; n++ {
		_, err = s.Ports.Log.Publish(within(t, patience), command)
	}
	wantCode(t, err, errcode.Unavailable)
	if !strings.Contains(err.Error(), "full") {
		t.Errorf("the reason is missing: %v", err)
	}
	st, err := j.Stream(within(t, patience), events.StreamCommands)
	must(t, err)
	if got := st.CachedInfo().State.Msgs; int(got) != n-1 {
		t.Errorf("%d commands are stored, %d were acknowledged", got, n-1)
	}
}

// TestFullDisk: the file system under the store is full. Writes are refused with the reason and
// none is half done; once there is space, the server accepts writes again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "disk")
	must(t, os.Mkdir(dir, 0o700))
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Fatalf("a small file system is needed (root, or a user namespace): %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	options := jetstream.ServerOptions{StoreDir: filepath.Join(dir, "nats"), Listen: "127.0.0.1:0"}
	server, c, _ := open(t, options)
	must(t, c.Ensure(within(t, patience), 1))
	b := c.Ports().Buckets.Bucket(events.BucketJobs)
	stored := map[string]uint64{}
	rev, err := b.Save(within(t, patience), "job-0", []byte("before"), 0)
	must(t, err)
	stored["job-0"] = rev
	ballast := filepath.Join(dir, "ballast")
	fill(t, ballast)
	for i := 1; i < 400 && err == nil; i++ {
		key := fmt.Sprint("job-", i)
		limit, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if rev, err = b.Save(limit, key, make([]byte, 256<<10), 0); err == nil {
			stored[key] = rev
		}
		cancel()
	}
	t.Logf("after %d documents: %v", len(stored), err)
	wantCode(t, err, errcode.Unavailable)
	await(t, "the server says why", func() bool { err = server.Stores(); return err != nil })
	if !strings.Contains(err.Error(), "is full") {
		t.Errorf("the reason is missing: %v", err)
	}
	t.Log(err)
	must(t, os.Remove(ballast))
	await(t, "the server takes on", func() bool { return server.Stores() == nil })
	must(t, c.Verify(within(t, patience)))
	for key, rev := range stored {
		if _, at, err := b.Load(within(t, patience), key); err != nil || at != rev {
			t.Errorf("%s is at %d (%v), was stored at %d", key, at, err, rev)
		}
	}
	retry(t, "save with space", func(ctx context.Context) error {
		_, err := b.Save(ctx, "job-after", []byte("after"), 0)
		return err
	})
}

// fill fills the file system of a file.
func fill(t *testing.T, file string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o600)
	must(t, err)
	defer f.Close()
	for block := make([]byte, 64<<10); len(block) > 512; {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
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
		_, err := s.Ports.Log.Publish(within(t, patience), broker.Message{Subject: fact(fmt.Sprint("job-", i)), Data: make([]byte, size)})
		must(t, err)
	}
	t.Logf("%d MiB were stored in %v past a reader that stood still", messages*size>>20, time.Since(began).Round(time.Millisecond))
	close(hold)
	for i := range messages {
		if at := next(t, got, "the slow reader reads on"); at != fact(fmt.Sprint("job-", i)) {
			t.Fatalf("message %d is %s", i, at)
		}
	}
}
