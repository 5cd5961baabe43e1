// Package backoff waits between attempts.
package backoff

import (
	"context"
	"time"
)

// Exponential is a wait that doubles with each attempt.
type Exponential struct {
	First, Max time.Duration

	next time.Duration
}

// Sleep waits for the next interval. It returns false if ctx ended first.
func (e *Exponential) Sleep(ctx context.Context) bool {
	wait := max(e.next, e.First)
	e.next = min(2*wait, e.Max)
	return Sleep(ctx, wait)
}

// Reset makes the next interval the first one.
func (e *Exponential) Reset() { e.next = 0 }

// Sleep waits for d. It returns false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
