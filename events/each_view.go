package events

import (
	"context"
	"errors"
)

// errListed ends a watch once everything present was seen.
var errListed = errors.New("listed")

// EachView calls fn with the public view of every document in a bucket, in no order. A document that this version cannot
// read is passed over: its judge complains about it.
func EachView[V any](ctx context.Context, b Bucket, fn func(key string, view V)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := b.Watch(ctx, func(key string, value []byte, _ uint64) {
		if value == nil || ctx.Err() != nil {
			return
		}
		if v, err := DecodeView[V](value); err == nil {
			fn(key, v)
		}
	}, func() { cancel(errListed) })
	if errors.Is(context.Cause(ctx), errListed) {
		return nil
	}
	return err
}
