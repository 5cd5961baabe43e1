package jetstream

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events"
)

func TestErrorsOfTheLibraryAreConverted(t *testing.T) {
	api := func(status int, code js.ErrorCode) error {
		return fmt.Errorf("nats: %w", &js.APIError{Code: status, ErrorCode: code, Description: "as the server says"})
	}
	for _, c := range []struct {
		err  error
		want events.Code
	}{
		{api(400, 10071), events.Conflict},
		{api(400, 10164), events.Conflict},
		{api(404, 10037), events.NotFound},
		{api(404, 10059), events.Unavailable},
		{api(400, 10054), events.TooLarge},
		{api(503, 10023), events.Unavailable},
		{api(500, 10047), events.Unavailable},
		{api(503, 10077), events.Unavailable},
		{api(400, 10005), events.Unavailable},
		{api(503, 10008), events.Unavailable},
		{api(500, 10009), events.Unavailable},
		{api(409, 10158), events.Unavailable},
		{api(400, 10138), events.Invalid},
		{api(500, 10049), events.Internal},
		{nats.ErrMaxPayload, events.TooLarge},
		{nats.ErrNoResponders, events.Unavailable},
		{js.ErrNoStreamResponse, events.Unavailable},
		{nats.ErrTimeout, events.Unavailable},
		{nats.ErrConnectionClosed, events.Unavailable},
		{nats.ErrReconnectBufExceeded, events.Unavailable},
		{context.Canceled, events.Cancelled},
		{nats.ErrBadSubject, events.Invalid},
		{events.Errorf(events.Fenced, "old"), events.Fenced},
	} {
		got := coded("do it", c.err)
		if events.CodeOf(got) != c.want {
			t.Errorf("%v became %q, want %q", c.err, events.CodeOf(got), c.want)
		}
		if !errors.Is(got, c.err) && !errors.Is(c.err, js.ErrNoStreamResponse) {
			t.Errorf("%v lost its cause", got)
		}
	}
	if coded("do it", nil) != nil {
		t.Error("nil became an error")
	}
}

func TestRefusedSubject(t *testing.T) {
	if got := refusedSubject(`nats: permissions violation: Permissions Violation for Publish to "a.b"`); got != "a.b" {
		t.Errorf("got %q", got)
	}
}
