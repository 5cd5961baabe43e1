package document_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/memory"
)

func TestRecords(t *testing.T) {
	b := memory.New().Ports().Buckets.Bucket(events.BucketNodes)
	save := func(key, text string) {
		if _, err := b.Save(t.Context(), key, []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	none, err := document.All[events.NodeView](t.Context(), b)
	if err != nil || len(none) != 0 {
		t.Errorf("an empty bucket: %v, %v", none, err)
	}
	save("node-b", `{"schema":1,"version":3,"state":{"view":{"slots":2}},"number":{"node":7}}`)
	save("node-a", `{"schema":1,"version":1,"state":{"view":{"slots":1}}}`)
	save("node-c", `{"schema":99,"version":1,"state":{}}`) // a newer version's
	save("node-d", `{"schema":1,"version":1,"state":{"view":7}}`)
	all, err := document.All[events.NodeView](t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, r := range all {
		got += fmt.Sprintln(r.Key, r.View.Slots, r.Number[events.FamilyNode])
	}
	if want := "node-a 1 0\nnode-b 2 7\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	r := document.Reader[events.NodeView]{Bucket: b}
	if _, err := r.Records(t.Context()); err != nil {
		t.Fatal(err)
	}
	left := fmt.Sprint(r.Unreadable())
	if want := "map[node-c:document has schema 99, this version understands up to 1: upgrade it node-d:decode view: json: cannot unmarshal number into Go struct field .view of type events.NodeView]"; left != want {
		t.Errorf("left out %s, want %s", left, want)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := document.All[events.NodeView](ended, b); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v, want Canceled", err)
	}
}

// TestReaderSeesEveryChange: it does not decode unchanged documents again, but those that were
// changed, removed or repaired.
func TestReaderSeesEveryChange(t *testing.T) {
	b := memory.New().Ports().Buckets.Bucket(events.BucketNodes)
	r := document.Reader[events.NodeView]{Bucket: b}
	at := map[string]uint64{}
	save := func(key, text string) {
		t.Helper()
		revision, err := b.Save(t.Context(), key, []byte(text), at[key])
		if err != nil {
			t.Fatal(err)
		}
		at[key] = revision
	}
	check := func(want string) {
		t.Helper()
		all, err := r.Records(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, r := range all {
			got += fmt.Sprint(r.Key, " ", r.View.Slots, "; ")
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	check("")
	save("node-a", `{"schema":1,"version":1,"state":{"view":{"slots":1}}}`)
	save("node-b", `{"schema":1,"version":1,"state":{"view":7}}`)
	save("node-c", `{"schema":1,"version":1,"state":{"view":{"slots":3}}}`)
	check("node-a 1; node-c 3; ")
	check("node-a 1; node-c 3; ")
	save("node-a", `{"schema":1,"version":2,"state":{"view":{"slots":4}}}`)
	save("node-b", `{"schema":1,"version":2,"state":{"view":{"slots":2}}}`)
	if err := b.Delete(t.Context(), "node-c", at["node-c"]); err != nil {
		t.Fatal(err)
	}
	check("node-a 4; node-b 2; ")
}

// TestFollowedBucketIsNotReadAgain: after the initial list the last known records are returned.
func TestFollowedBucketIsNotReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		b := &counting{Bucket: p.Buckets.Bucket(events.BucketNodes)}
		save := func(key, text string, revision uint64) uint64 {
			t.Helper()
			revision, err := b.Save(t.Context(), key, []byte(text), revision)
			if err != nil {
				t.Fatal(err)
			}
			return revision
		}
		a := save("node-a", `{"schema":1,"version":1,"state":{"view":{"slots":1}}}`, 0)
		r := document.Reader[events.NodeView]{Bucket: b}
		ctx, stop := context.WithCancel(t.Context())
		var following sync.WaitGroup
		following.Go(func() { _ = r.Follow(ctx) })
		synctest.Wait()
		check := func(want string, watches int) {
			t.Helper()
			synctest.Wait()
			all, err := r.Records(t.Context())
			got := ""
			for _, r := range all {
				got += fmt.Sprint(r.Key, " ", r.View.Slots, "; ")
			}
			if err != nil || got != want || b.watches != watches {
				t.Errorf("got %q, %v after %d watches, want %q after %d", got, err, b.watches, want, watches)
			}
		}
		check("node-a 1; ", 1)
		c := save("node-c", `{"schema":1,"version":1,"state":{"view":{"slots":3}}}`, 0)
		save("node-b", `{"schema":99,"version":1,"state":{}}`, 0) // a newer version's
		a = save("node-a", `{"schema":1,"version":2,"state":{"view":{"slots":2}}}`, a)
		check("node-a 2; node-c 3; ", 1)
		if err := b.Delete(t.Context(), "node-c", c); err != nil {
			t.Fatal(err)
		}
		check("node-a 2; ", 1)
		stop()
		following.Wait()
		save("node-a", `{"schema":1,"version":3,"state":{"view":{"slots":5}}}`, a)
		check("node-a 5; ", 2)
	})
}

// counting counts the watches of a bucket.
type counting struct {
	broker.Bucket
	watches int
}

func (c *counting) Watch(ctx context.Context, fn func(string, []byte, uint64), listed func()) error {
	c.watches++
	return c.Bucket.Watch(ctx, fn, listed)
}
