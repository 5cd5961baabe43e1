package jetstream_test

import (
	"context"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events/eventstest"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
)

func TestMain(m *testing.M) { jetstreamtest.Main(m) }

func TestConformanceOnOneServer(t *testing.T) {
	t.Parallel()
	conform(t, jetstreamtest.One(t))
}

func TestConformanceOnThreeServers(t *testing.T) {
	t.Parallel()
	conform(t, jetstreamtest.Three(t))
}

func conform(t *testing.T, s *jetstreamtest.Servers) {
	eventstest.Run(t, func(t *testing.T) eventstest.Harness {
		return eventstest.Harness{Ports: s.Ports, Reconnect: func() { s.Reconnect(t) }, Client: func(t *testing.T) eventstest.Client {
			c := s.Connect(t, nil)
			return eventstest.Client{Ports: c.Ports(), Reconnect: func() { jetstreamtest.Reconnect(t, c) }, End: c.Close}
		}}
	})
}

func next[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(jetstreamtest.Patience):
		t.Fatalf("timed out: %s", what)
		panic("unreachable")
	}
}

// background runs a blocking method until the test ends or stop is called, and waits for it.
func background(t *testing.T, run func(ctx context.Context) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	var result error
	stopped := false
	stop = func() error {
		if !stopped {
			stopped = true
			cancel()
			result = next(t, ended, "a blocking method returns at the end of its context")
		}
		return result
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}
