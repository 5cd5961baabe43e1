// Package eventstest is the conformance suite of the ports: the behaviour that every implementation
// must have, and on which the rest of Regroup may rely.
package eventstest

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/wait"
)

// Harness is one implementation under test.
type Harness struct {
	Ports broker.Ports
	// Reconnect closes and restores the client's connection and returns when it is established; nil
	// = impossible.
	Reconnect func()
	// Client creates another process on the same broker.
	Client func(t *testing.T) Client
}

// Client is another process with a connection of its own.
type Client struct {
	Ports     broker.Ports
	Reconnect func() // as Harness.Reconnect
	End       func() // ends the connection for good
}

// patience is how long a condition may take before the test fails; normally it takes milliseconds.
const patience = time.Minute

// Run tests the ports that newPorts returns, which may share a broker: each test has own entities.
func Run(t *testing.T, newPorts func(t *testing.T) Harness) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, Harness)
	}{
		{"log/publish in order", logOrder},
		{"log/publish carries the trace", logTrace},
		{"log/same id is stored once", logSameID},
		{"log/refusals", logRefusals},
		{"log/publish many", logPublishAll},
		{"log/last", logLast},
		{"log/next", logNext},
		{"log/clock", logClock},
		{"follow/first", followFirst},
		{"follow/new", followNew},
		{"follow/sequence", followSequence},
		{"follow/time", followTime},
		{"follow/ends with its handler's error", followError},
		{"follow/reconnect", followReconnect},
		{"consume/shared by two", consumeShared},
		{"consume/retry and drop", consumeRetryDrop},
		{"consume/ack wait", consumeAckWait},
		{"consume/parallel", consumeParallel},
		{"consume/durable", consumeDurable},
		{"consume/commands are a work queue", consumeCommands},
		{"consume/reconnect", consumeReconnect},
		{"calls/answer", callAnswer},
		{"calls/refusal keeps its code", callRefusal},
		{"calls/no server", callNoServer},
		{"calls/queue", callQueue},
		{"calls/concurrent", callConcurrent},
		{"calls/trace", callTrace},
		{"calls/caller gives up", callGivesUp},
		{"signals/order", signalOrder},
		{"signals/queue", signalQueue},
		{"signals/too large", signalTooLarge},
		{"launches", launches},
		{"launches/reconnect", launchesReconnect},
		{"watch connection", watchConnection},
		{"links/own", linkOwn},
		{"links/ends", linkEnds},
		{"brokers/streams", brokersStreams},
		{"brokers/backlog", brokersBacklog},
		{"bucket/create and compare", bucketCompare},
		{"bucket/delete", bucketDelete},
		{"bucket/one winner", bucketOneWinner},
		{"bucket/never stale", bucketNeverStale},
		{"bucket/watch", bucketWatch},
		{"bucket/list while it changes", bucketListWhileItChanges},
		{"bucket/too large", bucketTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, newPorts(t)) })
	}
}

// errOver is the cause with which the suite ends background methods.
var errOver = errors.New("the test is over")

// unique returns a token that no other test uses.
func unique(prefix string) string { return prefix + "-" + strings.ToLower(rand.Text()[:10]) }

func timeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// background runs a blocking method until stop is called or the test ends, and checks that it then
// returns with the cause of its context.
func background(t *testing.T, run func(ctx context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { ended <- run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel(errOver)
		select {
		case err := <-ended:
			if !errors.Is(err, errOver) {
				t.Errorf("a blocking method returned %v, want the cause of its context", err)
			}
			wg.Wait()
		case <-time.After(patience):
			t.Error("a blocking method did not return at the end of its context")
		}
	})
	t.Cleanup(stop)
	return stop
}

// next receives from c or fails the test.
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

func none[T any](t *testing.T, c <-chan T, what string) {
	t.Helper()
	select {
	case v := <-c:
		t.Fatalf("%s: got %v", what, v)
	default:
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	Eventually(t, patience, what, ok)
}

// Eventually polls until ok returns true, or fails the test after a time.
func Eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := wait.Until(ctx, 5*time.Millisecond, func() (bool, error) { return ok(), nil }); err != nil {
		t.Fatalf("timed out: %s", what)
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

// huge returns a value over any limit that a broker of Regroup may have.
func huge() []byte { return make([]byte, 9<<20) }
