package linear

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/rendezvous"
)

// TestAnOldCopyOfTheStoreSealsNothingTwice restarts the broker with a copy of its store from two
// generations ago. The rendezvous, which has kept running, detects and reports it, and decides
// nothing.
func TestAnOldCopyOfTheStoreSealsNothingTwice(t *testing.T) {
	s := jetstreamtest.One(t)
	h := &history{began: time.Now(), sealed: map[ident.Generation]events.RoundSealed{}, readAt: map[ident.Generation]int64{}}
	workers, places := newMembers(t, s, h)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex
	printed := ""
	r, err := rendezvous.New(s.Connect(t, nil).Ports(), func(o controller.Observation) {
		if o.Err != nil && strings.Contains(o.Err.Error(), "went back") {
			mu.Lock()
			printed = o.Err.Error()
			mu.Unlock()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before the connections are closed
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	g.Go(func() error { return r.Run(ctx) })
	for _, m := range workers {
		g.Go(func() error { return m.listen(ctx) })
	}
	place(t, s.Ports, places)
	train(ctx, t, workers, 2)

	dir := s.Options[0].StoreDir
	old := t.TempDir()
	s.Stop(0)
	if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	s.Start(t, 0)
	train(ctx, t, workers, 2)
	before := generation(t, s)
	s.Stop(0)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(old)); err != nil {
		t.Fatal(err)
	}
	s.Start(t, 0)
	past := generation(t, s)
	if past >= before {
		t.Fatalf("the copy is of %s, the newer store was at %s", past, before)
	}
	joins, stop := errgroup.WithContext(ctx)
	for _, m := range workers {
		joins.Go(func() error {
			left, _ := m.state()
			limit, cancel := context.WithTimeout(stop, 5*time.Second)
			defer cancel()
			if err := m.join(limit, left); limit.Err() == nil {
				return fmt.Errorf("%s was let in: %w", m.place, err)
			}
			return nil
		})
	}
	await(t, "the rendezvous says that time went back", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return printed != ""
	})
	if err := joins.Wait(); err != nil {
		t.Error(err)
	}
	if now := generation(t, s); now != past {
		t.Errorf("%s was sealed on top of the past %s", now, past)
	}
	mu.Lock()
	defer mu.Unlock()
	t.Log(printed)
}

// generation reads the round's document.
func generation(t *testing.T, s *jetstreamtest.Servers) ident.Generation {
	t.Helper()
	var v events.RoundView
	await(t, "the round can be read", func() bool {
		b, _, err := s.Ports.Buckets.Bucket(events.BucketRounds).Load(t.Context(), string(job))
		if err != nil {
			return false
		}
		v, err = document.View[events.RoundView](b)
		return err == nil
	})
	return v.Generation
}
