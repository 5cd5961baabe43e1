package controller

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// Every calls fn once per interval until ctx ends or fn fails. A call that takes longer delays the
// next ones.
func Every(ctx context.Context, interval time.Duration, fn func(now time.Time) error) error {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now := <-t.C:
			if err := fn(now); err != nil {
				return err
			}
		}
	}
}

// Each calls fn for every item, up to limit at once, and returns when all calls have.
func Each[T any](limit int, items []T, fn func(T)) {
	var g errgroup.Group
	g.SetLimit(limit)
	for _, item := range items {
		g.Go(func() error {
			fn(item)
			return nil
		})
	}
	_ = g.Wait() // fn returns nothing
}
