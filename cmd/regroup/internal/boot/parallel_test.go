package boot

import (
	"context"
	"errors"
	"testing"
)

func untilDone(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }

func TestBoth(t *testing.T) {
	boom := errors.New("boom")
	ended := false
	slow := func(ctx context.Context) error { err := untilDone(ctx); ended = true; return err }
	if err := Both(t.Context(), slow, func(context.Context) error { return boom }); !errors.Is(err, boom) || !ended {
		t.Errorf("got %v (the other ended: %v), want boom", err, ended)
	}
	if err := Both(t.Context(), func(context.Context) error { return nil }, untilDone); err != nil {
		t.Errorf("got %v, want nothing", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(boom)
	if err := Both(ctx, untilDone, untilDone); !errors.Is(err, boom) {
		t.Errorf("got %v, want the parent's cause", err)
	}
}
