package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream"
	"github.com/regroup-io/regroup/jetstream/backup"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
	"github.com/regroup-io/regroup/jetstream/server"
)

const backedUp = "regroup.evt.job.demo-1.submitted"

// bare starts a server without streams.
func bare(t *testing.T) *jetstream.Conn {
	t.Helper()
	s, err := server.Start(server.Options{StoreDir: t.TempDir()})
	jetstreamtest.Must(t, err)
	t.Cleanup(s.Shutdown)
	c, err := jetstream.Connect(jetstreamtest.Within(t, jetstreamtest.Patience), jetstream.ConnectOptions{Server: s})
	jetstreamtest.Must(t, err)
	t.Cleanup(c.Close)
	return c
}

// filled is a cluster of three servers with four facts, of which a consumer has settled two, and a
// document.
func filled(t *testing.T) (*jetstream.Conn, uint64) {
	t.Helper()
	s := jetstreamtest.Three(t)
	for n := range 4 {
		_, err := s.Ports.Log.Publish(jetstreamtest.Within(t, jetstreamtest.Patience), broker.Message{Subject: backedUp, ID: fmt.Sprint(n), Data: fmt.Append(nil, n)})
		jetstreamtest.Must(t, err)
	}
	jetstreamtest.Consume(t, s.Conn, 2)
	revision, err := s.Ports.Buckets.Bucket(events.BucketJobs).Save(jetstreamtest.Within(t, jetstreamtest.Patience), "demo-1", []byte("state"), 0)
	jetstreamtest.Must(t, err)
	return s.Conn, revision
}

// TestBackupOfThreeServersIsRestoredOnOne: documents keep their revisions, and consumers go on
// where they were.
func TestBackupOfThreeServersIsRestoredOnOne(t *testing.T) {
	t.Parallel()
	from, revision := filled(t)
	dir := filepath.Join(t.TempDir(), "backup")
	made, err := from.Backup(jetstreamtest.Within(t, jetstreamtest.Patience), dir, "1.2.3")
	jetstreamtest.Must(t, err)
	if made.Version != "1.2.3" || len(made.Streams) != len(events.Streams()) || made.Bytes() == 0 {
		t.Errorf("the backup is %+v", made)
	}
	for file, want := range map[string]os.FileMode{"": 0o700, backup.ManifestFile: 0o600, "KV_jobs.snapshot": 0o600} {
		info, err := os.Stat(filepath.Join(dir, file))
		jetstreamtest.Must(t, err)
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%q has mode %o, want %o", file, got, want)
		}
	}
	to := bare(t)
	_, err = to.Restore(jetstreamtest.Within(t, jetstreamtest.Patience), dir, 1)
	jetstreamtest.Must(t, err)
	jetstreamtest.Must(t, to.Verify(jetstreamtest.Within(t, jetstreamtest.Patience)))
	value, at, err := to.Ports().Buckets.Bucket(events.BucketJobs).Load(jetstreamtest.Within(t, jetstreamtest.Patience), "demo-1")
	if err != nil || string(value) != "state" || at != revision {
		t.Errorf("the document is %q at %d, %v; want that of revision %d", value, at, err, revision)
	}
	if got := strings.Join(jetstreamtest.Consume(t, to, 2), " "); got != "2 3" {
		t.Errorf("the consumer goes on with %q, want 2 3", got)
	}

	_, err = to.Restore(jetstreamtest.Within(t, jetstreamtest.Patience), dir, 1)
	if errcode.Of(err) != errcode.Conflict {
		t.Errorf("restore over streams: %v, want Conflict", err)
	}
	for _, name := range events.Streams() {
		if err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("the refusal does not name %s: %v", name, err)
		}
	}
	if _, err := from.Backup(jetstreamtest.Within(t, jetstreamtest.Patience), dir, "1.2.3"); errcode.Of(err) != errcode.Conflict {
		t.Errorf("backup into a directory that has one: %v, want Conflict", err)
	}
}

// TestDamagedBackupIsRefused, with everything that is wrong with it.
func TestDamagedBackupIsRefused(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.One(t)
	dir := filepath.Join(t.TempDir(), "backup")
	if _, err := backup.Check(dir); errcode.Of(err) != errcode.NotFound {
		t.Errorf("a backup that is not there: %v, want NotFound", err)
	}
	_, err := s.Conn.Backup(jetstreamtest.Within(t, jetstreamtest.Patience), dir, "1.2.3")
	jetstreamtest.Must(t, err)
	_, err = backup.Check(dir)
	jetstreamtest.Must(t, err)
	changed := filepath.Join(dir, "KV_jobs.snapshot")
	data, err := os.ReadFile(changed)
	jetstreamtest.Must(t, err)
	data[len(data)/2] ^= 1
	jetstreamtest.Must(t, os.WriteFile(changed, data, 0o600))
	jetstreamtest.Must(t, os.Truncate(filepath.Join(dir, "KV_nodes.snapshot"), 1))
	jetstreamtest.Must(t, os.Remove(filepath.Join(dir, events.StreamFacts+".snapshot")))
	to := bare(t)
	_, err = to.Restore(jetstreamtest.Within(t, jetstreamtest.Patience), dir, 0)
	for _, want := range []string{"KV_jobs.snapshot was changed", "KV_nodes.snapshot has 1 bytes", events.StreamFacts + ".snapshot"} {
		if errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want Invalid with %q", err, want)
		}
	}
	if err := to.Verify(jetstreamtest.Within(t, jetstreamtest.Patience)); err == nil || !strings.Contains(err.Error(), events.StreamCommands+" does not exist") {
		t.Errorf("a damaged backup was restored: %v", err)
	}
}

// TestNoBackupWhileDocumentsChange: copies that may contradict each other are no backup.
func TestNoBackupWhileDocumentsChange(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.One(t)
	bucket := s.Ports.Buckets.Bucket(events.BucketRounds)
	revision, err := bucket.Save(jetstreamtest.Within(t, jetstreamtest.Patience), "demo-1", []byte("state"), 0)
	jetstreamtest.Must(t, err)
	background(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			next, err := bucket.Save(ctx, "demo-1", []byte("state"), revision)
			if err != nil { // a busy server may not answer in time
				_, next, _ = bucket.Load(ctx, "demo-1")
			}
			revision = next
		}
		return context.Cause(ctx)
	})
	// A busy machine may need longer for the first copies.
	for limit := 2 * time.Second; ; limit *= 2 {
		dir := filepath.Join(t.TempDir(), "backup")
		_, err := s.Conn.Backup(jetstreamtest.Within(t, limit), dir, "1.2.3")
		if errcode.Of(err) != errcode.Unavailable {
			t.Fatalf("%v, want Unavailable", err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("copies that contradict each other have left something: %v", err)
		}
		if strings.Contains(err.Error(), "KV_rounds has changed") {
			return
		}
		if limit > jetstreamtest.Patience {
			t.Fatalf("%v, want that it is because of KV_rounds", err)
		}
	}
}

// TestABackupThatFailedBlocksNoOther: what it has written is gone, also where its process was
// killed, and what others have put there stays.
func TestABackupThatFailedBlocksNoOther(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.One(t)
	dir := t.TempDir()
	expired, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Conn.Backup(expired, dir, "1.2.3"); err == nil {
		t.Fatal("a backup without time")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it has left %v, %v in a directory that was there before", left, err)
	}
	for _, name := range []string{"KV_jobs.snapshot", events.StreamFacts + ".snapshot", "." + backup.ManifestFile + "-123"} { // of one that was killed
		jetstreamtest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600))
	}
	lock, err := os.Open(dir)
	jetstreamtest.Must(t, err)
	jetstreamtest.Must(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	if _, err := s.Conn.Backup(jetstreamtest.Within(t, jetstreamtest.Patience), dir, "1.2.3"); errcode.Of(err) != errcode.Conflict || !strings.Contains(err.Error(), "another backup") {
		t.Errorf("beside another one: %v, want Conflict", err)
	}
	jetstreamtest.Must(t, lock.Close())
	_, err = s.Conn.Backup(jetstreamtest.Within(t, jetstreamtest.Patience), dir, "1.2.3")
	jetstreamtest.Must(t, err)
	_, err = backup.Check(dir)
	jetstreamtest.Must(t, err)

	others := t.TempDir()
	jetstreamtest.Must(t, os.WriteFile(filepath.Join(others, "KV_jobs.snapshot"), []byte("half"), 0o600))
	jetstreamtest.Must(t, os.WriteFile(filepath.Join(others, "notes"), []byte("mine"), 0o600))
	if _, err := s.Conn.Backup(jetstreamtest.Within(t, jetstreamtest.Patience), others, "1.2.3"); errcode.Of(err) != errcode.Conflict {
		t.Errorf("beside a file of another program: %v, want Conflict", err)
	}
	if left, err := os.ReadDir(others); err != nil || len(left) != 2 {
		t.Errorf("it has left %v, %v", left, err)
	}
}

// TestReadersComeAndGoDuringABackup: the server copies the consumers of a stream too, and ends the
// copy if one of them is removed meanwhile.
func TestReadersComeAndGoDuringABackup(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.Three(t)
	for range 4 {
		background(t, func(ctx context.Context) error {
			for ctx.Err() == nil {
				watch, stop := context.WithCancel(ctx)
				_ = s.Ports.Buckets.Bucket(events.BucketRounds).Watch(watch, func(string, []byte, uint64) {}, stop) // until it has the list
			}
			return ctx.Err()
		})
	}
	for n := range 4 {
		_, err := s.Conn.Backup(jetstreamtest.Within(t, jetstreamtest.Patience), filepath.Join(t.TempDir(), fmt.Sprint(n)), "1.2.3")
		jetstreamtest.Must(t, err)
	}
}

// TestTheOperatorBacksUp, and nobody else does.
func TestTheOperatorBacksUp(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.issue(t, access.RoleClient, 0)
	g.issue(t, access.RoleOperator, 0)
	dir := filepath.Join(t.TempDir(), "backup")
	if _, err := g.connect(t, "test-client").Backup(jetstreamtest.Within(t, 2*time.Second), dir, "1.2.3"); err == nil {
		t.Error("a client has made a backup")
	}
	jetstreamtest.Must(t, os.RemoveAll(dir))
	_, err := g.connect(t, "test-operator").Backup(jetstreamtest.Within(t, jetstreamtest.Patience), dir, "1.2.3")
	jetstreamtest.Must(t, err)
}
