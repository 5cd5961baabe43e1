package jetstreamtest

import (
	"context"
	"errors"
	"flag"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/eventstest"
	"github.com/regroup-io/regroup/jetstream"
)

// Main runs the tests of a package, four at once, because they wait most of their time for
// elections; it fails if they leave goroutines behind.
func Main(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// Within returns a context that ends after d, or with the test.
func Within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// Retry retries like a service, while the error is Unavailable.
func Retry(t testing.TB, what string, do func(ctx context.Context) error) {
	t.Helper()
	end := time.Now().Add(Patience)
	for {
		err := do(Within(t, Patience))
		if err == nil {
			return
		}
		if !errors.Is(err, errcode.ErrUnavailable) || time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// Must ends the test with an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Await polls for a condition without a notification.
func Await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	eventstest.Eventually(t, Patience, what, ok)
}

// WantCode ends the test unless the error has the code.
func WantCode(t testing.TB, err error, code errcode.Code) {
	t.Helper()
	if errcode.Of(err) != code {
		t.Fatalf("got %v (code %q), want code %q", err, errcode.Of(err), code)
	}
}

// Consume settles n facts as the registry's durable consumer and returns their data.
func Consume(t testing.TB, c *jetstream.Conn, n int) (got []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(Within(t, Patience))
	defer cancel()
	err := c.Ports().Log.Consume(ctx, broker.Consumer{Stream: events.StreamFacts, Durable: "registry-evt", Subjects: []string{events.AllFacts}, Parallel: 1}, func(d broker.Delivery) {
		if len(got) < n {
			got = append(got, string(d.Data))
			d.Ack()
		}
		if len(got) == n {
			cancel()
		}
	})
	if len(got) < n {
		t.Fatalf("%d of %d facts, then: %v", len(got), n, err)
	}
	return got
}
