package eventstest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/tracing"
)

type handler = func(ctx context.Context, data []byte) ([]byte, error)

// serve serves a subject and returns once the first call succeeds.
func serve(t *testing.T, p broker.Ports, subject, queue string, handle handler) (stop func()) {
	t.Helper()
	stop = background(t, func(ctx context.Context) error {
		return p.Calls.Serve(ctx, subject, queue, func(ctx context.Context, data []byte) ([]byte, error) {
			if string(data) == "probe" {
				return nil, nil
			}
			return handle(ctx, data)
		})
	})
	eventually(t, "a process serves "+subject, func() bool {
		_, err := p.Calls.Call(timeout(t), subject, []byte("probe"))
		return err == nil
	})
	return stop
}

func verb() string { return events.RequestSubject(events.ServiceDiscovery, unique("verb")) }

func callAnswer(t *testing.T, h Harness) {
	sub := verb()
	stop := serve(t, h.Ports, sub, "", func(_ context.Context, data []byte) ([]byte, error) { return append([]byte("re: "), data...), nil })
	got, err := h.Ports.Calls.Call(timeout(t), sub, []byte("hello"))
	must(t, err)
	if string(got) != "re: hello" {
		t.Fatalf("answer is %q", got)
	}
	stop()
	eventually(t, "no server is left", func() bool {
		_, err := h.Ports.Calls.Call(timeout(t), sub, nil)
		return errcode.Of(err) == errcode.Unavailable
	})
}

func callRefusal(t *testing.T, h Harness) {
	sub := verb()
	serve(t, h.Ports, sub, "", func(_ context.Context, data []byte) ([]byte, error) {
		if code := errcode.Code(data); code != "plain" {
			return nil, errcode.Errorf(code, "no: because of %s\nand more, 100%% – ünïcode", code)
		}
		return nil, errors.New("a foreign error")
	})
	for _, code := range []errcode.Code{
		errcode.Invalid, errcode.NotFound, errcode.Conflict, errcode.Fenced, errcode.Exhausted, errcode.Unavailable, errcode.Newer, errcode.Internal,
	} {
		_, err := h.Ports.Calls.Call(timeout(t), sub, []byte(code))
		wantCode(t, err, code)
		if !strings.Contains(err.Error(), "no: because of "+string(code)) {
			t.Errorf("the text of the refusal is lost: %v", err)
		}
	}
	_, err := h.Ports.Calls.Call(timeout(t), sub, []byte("plain"))
	wantCode(t, err, errcode.Internal)
}

func callNoServer(t *testing.T, h Harness) {
	begin := time.Now()
	_, err := h.Ports.Calls.Call(timeout(t), verb(), nil)
	wantCode(t, err, errcode.Unavailable)
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("the error without a server took %s, want at once", took)
	}
}

func callQueue(t *testing.T, h Harness) {
	sub := verb()
	var handled atomic.Int64
	handle := func(context.Context, []byte) ([]byte, error) {
		handled.Add(1)
		return []byte("ok"), nil
	}
	serve(t, h.Ports, sub, "q", handle)
	serve(t, h.Ports, sub, "q", handle)
	const calls = 20
	for range calls {
		_, err := h.Ports.Calls.Call(timeout(t), sub, []byte("x"))
		must(t, err)
	}
	if n := handled.Load(); n != calls {
		t.Errorf("%d calls were handled %d times", calls, n)
	}
}

func callConcurrent(t *testing.T, h Harness) {
	sub := verb()
	met := make(chan struct{})
	serve(t, h.Ports, sub, "q", func(ctx context.Context, _ []byte) ([]byte, error) {
		select { // passes only if two handlers run concurrently
		case met <- struct{}{}:
		case <-met:
		case <-time.After(patience):
			return nil, errcode.Errorf(errcode.Internal, "alone")
		}
		return nil, nil
	})
	errs := make(chan error, 2)
	for range 2 {
		background(t, func(ctx context.Context) error {
			_, err := h.Ports.Calls.Call(ctx, sub, []byte("x"))
			errs <- err
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}
	must(t, next(t, errs, "first call"))
	must(t, next(t, errs, "second call"))
}

func callTrace(t *testing.T, h Harness) {
	sub := verb()
	serve(t, h.Ports, sub, "", func(ctx context.Context, _ []byte) ([]byte, error) { return []byte(tracing.FromContext(ctx)), nil })
	got, err := h.Ports.Calls.Call(tracing.NewContext(timeout(t), trace), sub, []byte("x"))
	must(t, err)
	if string(got) != trace {
		t.Errorf("the handler saw trace %q, want %q", got, trace)
	}
}

func callGivesUp(t *testing.T, h Harness) {
	sub := verb()
	entered := make(chan struct{}, 1)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	serve(t, h.Ports, sub, "", func(ctx context.Context, _ []byte) ([]byte, error) {
		entered <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil, nil
	})
	stop := background(t, func(ctx context.Context) error {
		_, err := h.Ports.Calls.Call(ctx, sub, []byte("x"))
		return err
	})
	next(t, entered, "the call arrived")
	stop() // checks that Call returns with the cause
}
