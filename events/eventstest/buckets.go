package eventstest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
)

func bucketCompare(t *testing.T, h Harness) {
	b, key := h.Ports.Buckets.Bucket(events.BucketJobs), unique("job")
	_, _, err := b.Load(timeout(t), key)
	wantCode(t, err, errcode.NotFound)
	_, err = b.Save(timeout(t), key, []byte("x"), 7)
	wantCode(t, err, errcode.Conflict)
	first, err := b.Save(timeout(t), key, []byte("one"), 0)
	must(t, err)
	_, err = b.Save(timeout(t), key, []byte("again"), 0)
	wantCode(t, err, errcode.Conflict)
	second, err := b.Save(timeout(t), key, []byte("two"), first)
	must(t, err)
	if second <= first {
		t.Errorf("revision %d after %d", second, first)
	}
	_, err = b.Save(timeout(t), key, []byte("late"), first)
	wantCode(t, err, errcode.Conflict)
	got, rev, err := b.Load(timeout(t), key)
	must(t, err)
	if string(got) != "two" || rev != second {
		t.Errorf("loaded %q at %d, want two at %d", got, rev, second)
	}
	// Buckets of different names are separate.
	_, _, err = h.Ports.Buckets.Bucket(events.BucketRounds).Load(timeout(t), key)
	wantCode(t, err, errcode.NotFound)
}

func bucketDelete(t *testing.T, h Harness) {
	b, key := h.Ports.Buckets.Bucket(events.BucketNodes), unique("node")
	first, err := b.Save(timeout(t), key, []byte("one"), 0)
	must(t, err)
	second, err := b.Save(timeout(t), key, []byte("two"), first)
	must(t, err)
	wantCode(t, b.Delete(timeout(t), key, first), errcode.Conflict)
	must(t, b.Delete(timeout(t), key, second))
	_, _, err = b.Load(timeout(t), key)
	wantCode(t, err, errcode.NotFound)
	_, err = b.Save(timeout(t), key, []byte("ghost"), second)
	wantCode(t, err, errcode.Conflict)
	third, err := b.Save(timeout(t), key, []byte("new value"), 0)
	must(t, err)
	if third <= second {
		t.Errorf("the new value has revision %d, not above %d", third, second)
	}
}

func bucketOneWinner(t *testing.T, h Harness) {
	b, key := h.Ports.Buckets.Bucket(events.BucketPlacements), unique("pool")
	var revision uint64
	for round := range 20 {
		var winners atomic.Int64
		var next atomic.Uint64
		var wg sync.WaitGroup
		for writer := range 16 {
			wg.Go(func() {
				rev, err := b.Save(timeout(t), key, fmt.Appendf(nil, "%d/%d", round, writer), revision)
				switch {
				case err == nil:
					winners.Add(1)
					next.Store(rev)
				case errcode.Of(err) != errcode.Conflict:
					t.Errorf("a loser got %v, want a conflict", err)
				}
			})
		}
		wg.Wait()
		if n := winners.Load(); n != 1 {
			t.Fatalf("round %d has %d winners", round, n)
		}
		revision = next.Load()
	}
}

func bucketNeverStale(t *testing.T, h Harness) {
	b, key := h.Ports.Buckets.Bucket(events.BucketRounds), unique("job")
	var revision uint64
	for i := range 200 {
		rev, err := b.Save(timeout(t), key, fmt.Appendf(nil, "%d", i), revision)
		must(t, err)
		got, loaded, err := h.Ports.Buckets.Bucket(events.BucketRounds).Load(timeout(t), key)
		must(t, err)
		if loaded != rev || string(got) != fmt.Sprint(i) {
			t.Fatalf("stale: loaded %q at %d straight after saving %d at %d", got, loaded, i, rev)
		}
		revision = rev
	}
}

func bucketWatch(t *testing.T, h Harness) {
	b, prefix := h.Ports.Buckets.Bucket(events.BucketJobs), unique("watch")
	key := func(s string) string { return prefix + "-" + s }
	one, err := b.Save(timeout(t), key("a"), []byte("a1"), 0)
	must(t, err)
	_, err = b.Save(timeout(t), key("b"), []byte("b1"), 0)
	must(t, err)
	removed, err := b.Save(timeout(t), key("gone"), []byte("x"), 0)
	must(t, err)
	must(t, b.Delete(timeout(t), key("gone"), removed))

	seen := make(chan string, 1000)
	background(t, func(ctx context.Context) error {
		return b.Watch(ctx, func(k string, value []byte, revision uint64) {
			if !strings.HasPrefix(k, prefix) {
				return // from another test
			}
			if value == nil {
				value = []byte("removed")
			}
			if revision == 0 {
				t.Errorf("%s has revision 0", k)
			}
			seen <- strings.TrimPrefix(k, prefix+"-") + "=" + string(value)
		}, func() { seen <- "listed" })
	})
	present := map[string]bool{}
	for s := next(t, seen, "present keys"); s != "listed"; s = next(t, seen, "present keys") {
		present[s] = true
	}
	if len(present) != 2 || !present["a=a1"] || !present["b=b1"] {
		t.Errorf("listed %v, want a=a1 and b=b1", present)
	}
	// One at a time: a slow watcher may miss a value that was replaced in the meantime.
	want := func(what string) {
		t.Helper()
		if got := next(t, seen, what); got != what {
			t.Fatalf("watched %q, want %q", got, what)
		}
	}
	two, err := b.Save(timeout(t), key("a"), []byte("a2"), one)
	must(t, err)
	want("a=a2")
	must(t, b.Delete(timeout(t), key("a"), two))
	want("a=removed")
	_, err = b.Save(timeout(t), key("c"), []byte{}, 0) // empty is not removed
	must(t, err)
	want("c=")
}

func bucketTooLarge(t *testing.T, h Harness) {
	_, err := h.Ports.Buckets.Bucket(events.BucketRounds).Save(timeout(t), unique("job"), huge(), 0)
	wantCode(t, err, errcode.TooLarge)
}

// bucketListWhileItChanges: a list has every key that existed before and still exists, however
// often it is written meanwhile. A caller would take a missing key for a removed one and end a job
// that waits.
func bucketListWhileItChanges(t *testing.T, h Harness) {
	b, prefix := h.Ports.Buckets.Bucket(events.BucketJobs), unique("list")
	const keys, lists = 100, 30
	revisions := make([]uint64, keys)
	key := func(i int) string { return fmt.Sprintf("%s-%d", prefix, i) }
	for i := range keys {
		rev, err := b.Save(timeout(t), key(i), []byte("new"), 0)
		must(t, err)
		revisions[i] = rev
	}
	ctx, stop := context.WithCancel(timeout(t))
	var wg sync.WaitGroup
	for writer := range 4 {
		wg.Go(func() {
			for i := writer; ctx.Err() == nil; i = (i + 4) % keys {
				rev, err := b.Save(ctx, key(i), []byte("changed"), revisions[i])
				if err != nil && ctx.Err() == nil {
					t.Errorf("write: %v", err)
					return
				}
				revisions[i] = rev
			}
		})
	}
	defer wg.Wait()
	defer stop()
	for range lists {
		here := map[string]bool{}
		list, cancel := context.WithCancelCause(timeout(t))
		err := b.Watch(list, func(k string, value []byte, _ uint64) {
			if list.Err() == nil && value != nil && strings.HasPrefix(k, prefix) {
				here[k] = true
			}
		}, func() { cancel(errOver) })
		cancel(nil)
		if !errors.Is(context.Cause(list), errOver) {
			t.Fatalf("list: %v", err)
		}
		if len(here) != keys {
			t.Fatalf("a list has %d of %d keys", len(here), keys)
		}
	}
}
