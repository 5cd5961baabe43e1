package boot

import (
	"context"
	"errors"
)

// errOtherReturned is the cause with which Both cancels the function that runs longer.
var errOtherReturned = errors.New("the other half has returned")

// Both runs a and b concurrently until one returns, cancels the context of the other, waits for it,
// and returns the first result. The end of ctx ends both.
func Both(ctx context.Context, a, b func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 2)
	for _, f := range []func(context.Context) error{a, b} {
		go func() { ended <- f(ctx) }()
	}
	first := <-ended
	cancel(errOtherReturned)
	<-ended
	return first
}
