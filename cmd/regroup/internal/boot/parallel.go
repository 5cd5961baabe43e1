package boot

import (
	"context"
	"errors"
)

// errOtherReturned ends the slower half of Both.
var errOtherReturned = errors.New("the other half has returned")

// Both runs a and b at once until the first of them returns, ends the context of the other, waits
// for it, and returns what the first returned. A parent that ends is the end of both.
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
