package jetstream_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
	"github.com/regroup-io/regroup/jetstream/server"
)

// hearing asks for the majority of the brokers of discovery's bucket, until the test ends.
type hearing struct {
	mu    sync.Mutex
	asked time.Time
	alone bool
	err   error
}

func hear(t *testing.T, c *jetstream.Conn) *hearing {
	t.Helper()
	h := &hearing{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := c.Ports().Links.Majority(ctx, events.BucketNodes, func(asked time.Time, alone bool) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.asked, h.alone = asked, alone
		})
		h.mu.Lock()
		defer h.mu.Unlock()
		h.err = err
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return h
}

// newest returns when the newest question was asked that most have answered.
func (h *hearing) newest() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked
}

// TestMostBrokersAnswer: two of three are most of them, also when the third has led the bucket. One
// is not, though it is the broker of the connection, and a bucket's leader until it notices.
func TestMostBrokersAnswer(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.Three(t)
	h := hear(t, s.Conn)
	after := func(what string) {
		t.Helper()
		now := time.Now()
		jetstreamtest.Await(t, what, func() bool { return h.newest().After(now) })
	}
	after("all three are there")
	first := s.Leader(t, events.BucketStream(events.BucketNodes))
	s.Stop(first)
	after("two are there")
	second := (first + 1) % 3
	s.Stop(second)
	jetstreamtest.Await(t, "it is connected to the third", func() bool { return s.Ports.Links.Own().Known() })
	alone := time.Now()
	jetstreamtest.Await(t, "the third has answered for a second, and so ten questions", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // it may have been sent to the stopped one
		defer cancel()
		_, err := s.Ports.Calls.Call(ctx, access.BrokersAlive, nil)
		return err == nil && time.Since(alone) > time.Second
	})
	if h.newest().After(alone) {
		t.Error("one of three is most of them")
	}
	s.Start(t, second)
	after("two are there again")
}

// TestTheOnlyBrokerIsAlone, and one that is the first of a cluster is all of it.
func TestTheOnlyBrokerIsAlone(t *testing.T) {
	t.Parallel()
	h := hear(t, jetstreamtest.One(t).Conn)
	jetstreamtest.Await(t, "it is alone", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.alone
	})
}

// TestDiscoveryMayAskForTheBrokers, and others learn that they may not.
func TestDiscoveryMayAskForTheBrokers(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, func(o *server.Options) {
		o.Cluster = server.Cluster{Name: "test", Listen: jetstreamtest.FreeAddresses(t, 1)[0], First: true}
	})
	h := hear(t, g.connect(t, g.issue(t, access.Role(events.ServiceDiscovery), 0).Name))
	jetstreamtest.Await(t, "the brokers answer discovery", func() bool { return !h.newest().IsZero() })
	h = hear(t, g.connect(t, g.issue(t, access.Role(events.ServiceScheduler), 0).Name))
	jetstreamtest.Await(t, "another service is refused", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return errors.Is(h.err, errcode.ErrNotFound)
	})
}
