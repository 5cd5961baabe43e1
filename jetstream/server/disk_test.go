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
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
	"github.com/regroup-io/regroup/jetstream/server"
)

// TestFullDisk: the file system under the store is full. Writes are refused with the reason and
// none is half done; once there is space, the server accepts writes again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "disk")
	jetstreamtest.Must(t, os.Mkdir(dir, 0o700))
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Fatalf("a small file system is needed (root, or a user namespace): %v", err)
	}
	t.Cleanup(func() { jetstreamtest.Must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	options := server.Options{StoreDir: filepath.Join(dir, "nats"), Listen: "127.0.0.1:0"}
	own, c, _ := open(t, options)
	jetstreamtest.Must(t, c.Ensure(jetstreamtest.Within(t, jetstreamtest.Patience), 1))
	b := c.Ports().Buckets.Bucket(events.BucketJobs)
	stored := map[string]uint64{}
	rev, err := b.Save(jetstreamtest.Within(t, jetstreamtest.Patience), "job-0", []byte("before"), 0)
	jetstreamtest.Must(t, err)
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
	jetstreamtest.WantCode(t, err, errcode.Unavailable)
	jetstreamtest.Await(t, "the server says why", func() bool { err = own.Stores(); return err != nil })
	if !strings.Contains(err.Error(), "is full") {
		t.Errorf("the reason is missing: %v", err)
	}
	t.Log(err)
	jetstreamtest.Must(t, os.Remove(ballast))
	jetstreamtest.Await(t, "the server takes on", func() bool { return own.Stores() == nil })
	jetstreamtest.Must(t, c.Verify(jetstreamtest.Within(t, jetstreamtest.Patience)))
	for key, rev := range stored {
		if _, at, err := b.Load(jetstreamtest.Within(t, jetstreamtest.Patience), key); err != nil || at != rev {
			t.Errorf("%s is at %d (%v), was stored at %d", key, at, err, rev)
		}
	}
	jetstreamtest.Retry(t, "save with space", func(ctx context.Context) error {
		_, err := b.Save(ctx, "job-after", []byte("after"), 0)
		return err
	})
}

// fill fills the file system of a file.
func fill(t *testing.T, file string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o600)
	jetstreamtest.Must(t, err)
	defer f.Close()
	for block := make([]byte, 64<<10); len(block) > 512; {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
}
