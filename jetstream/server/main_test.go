package server_test

import (
	"context"
	"errors"
	"flag"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/eventstest"
)

// TestMain runs four tests at once: they wait most of their time, for elections.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
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
	eventstest.Eventually(t, patience, what, func() bool {
		err := do(within(t, patience))
		if err != nil && !errors.Is(err, errcode.ErrUnavailable) {
			t.Fatalf("%s: %v", what, err)
		}
		return err == nil
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await polls for a condition without a notification.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	eventstest.Eventually(t, patience, what, ok)
}

func wantCode(t *testing.T, err error, code errcode.Code) {
	t.Helper()
	if errcode.Of(err) != code {
		t.Fatalf("got %v (code %q), want code %q", err, errcode.Of(err), code)
	}
}
