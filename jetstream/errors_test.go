package jetstream

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events/errcode"
)

func TestErrorsOfTheLibraryAreConverted(t *testing.T) {
	api := func(status int, code js.ErrorCode) error {
		return fmt.Errorf("nats: %w", &js.APIError{Code: status, ErrorCode: code, Description: "as the server says"})
	}
	for _, c := range []struct {
		err  error
		want errcode.Code
	}{
		{api(400, 10071), errcode.Conflict},
		{api(400, 10164), errcode.Conflict},
		{api(404, 10037), errcode.NotFound},
		{api(404, 10059), errcode.Unavailable},
		{api(400, 10054), errcode.TooLarge},
		{api(503, 10023), errcode.Unavailable},
		{api(500, 10047), errcode.Unavailable},
		{api(503, 10077), errcode.Unavailable},
		{api(400, 10005), errcode.Unavailable},
		{api(503, 10008), errcode.Unavailable},
		{api(500, 10009), errcode.Unavailable},
		{api(409, 10158), errcode.Unavailable},
		{api(400, 10138), errcode.Invalid},
		{api(500, 10049), errcode.Internal},
		{nats.ErrMaxPayload, errcode.TooLarge},
		{nats.ErrNoResponders, errcode.Unavailable},
		{js.ErrNoStreamResponse, errcode.Unavailable},
		{nats.ErrTimeout, errcode.Unavailable},
		{nats.ErrConnectionClosed, errcode.Unavailable},
		{nats.ErrReconnectBufExceeded, errcode.Unavailable},
		{context.Canceled, errcode.Cancelled},
		{nats.ErrBadSubject, errcode.Invalid},
		{errcode.Errorf(errcode.Fenced, "old"), errcode.Fenced},
	} {
		got := coded("do it", c.err)
		if errcode.Of(got) != c.want {
			t.Errorf("%v became %q, want %q", c.err, errcode.Of(got), c.want)
		}
		if !errors.Is(got, c.err) && !errors.Is(c.err, js.ErrNoStreamResponse) {
			t.Errorf("%v lost its cause", got)
		}
	}
	if coded("do it", nil) != nil {
		t.Error("nil became an error")
	}
}
