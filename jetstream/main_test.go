package jetstream_test

import (
	"context"
	"errors"
	"flag"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/eventstest"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
)

// TestMain runs four tests at once: they wait most of their time, for elections.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

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

// patience is how long a condition may take: a cluster that lost its leader needs 4 to 8 s to elect
// another.
const patience = 60 * time.Second

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// retry retries like a service, while the error is Unavailable.
func retry(t *testing.T, what string, do func(ctx context.Context) error) {
	t.Helper()
	end := time.Now().Add(patience)
	for {
		err := do(within(t, patience))
		if err == nil {
			return
		}
		if !errors.Is(err, errcode.ErrUnavailable) || time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, code errcode.Code) {
	t.Helper()
	if errcode.Of(err) != code {
		t.Fatalf("got %v (code %q), want code %q", err, errcode.Of(err), code)
	}
}

func next[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
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

// await polls for a condition without a notification.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	eventstest.Eventually(t, patience, what, ok)
}
