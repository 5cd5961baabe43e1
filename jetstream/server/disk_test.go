package server_test

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
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream/server"
)

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
	options := server.Options{StoreDir: filepath.Join(dir, "nats"), Listen: "127.0.0.1:0"}
	own, c, _ := open(t, options)
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
	await(t, "the server says why", func() bool { err = own.Stores(); return err != nil })
	if !strings.Contains(err.Error(), "is full") {
		t.Errorf("the reason is missing: %v", err)
	}
	t.Log(err)
	must(t, os.Remove(ballast))
	await(t, "the server takes on", func() bool { return own.Stores() == nil })
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
