// Package wait pauses a goroutine: for a time, between attempts, or until a condition holds. The
// end of a context ends every wait.
package wait

import (
	"context"
	"sync"
	"time"
)

// Sleep waits for d. It returns false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Notify wakes who receives from a channel of capacity 1, unless a wake-up waits there already.
func Notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// After calls fn after d unless stop is called before. Once stop has returned, fn does not run.
func After(d time.Duration, fn func()) (stop func()) {
	ended := make(chan struct{})
	t := time.AfterFunc(d, func() {
		defer close(ended)
		fn()
	})
	return sync.OnceFunc(func() {
		if !t.Stop() {
			<-ended
		}
	})
}

// Backoff is the pause between attempts: First, and then twice the last one, up to Max.
type Backoff struct {
	First, Max time.Duration

	next time.Duration
}

// Next returns the next pause.
func (b *Backoff) Next() time.Duration {
	d := max(b.next, b.First)
	b.next = min(2*d, b.Max)
	return d
}

// Sleep waits for the next pause. It returns false if ctx ended first.
func (b *Backoff) Sleep(ctx context.Context) bool { return Sleep(ctx, b.Next()) }

// Reset makes the next pause the first one.
func (b *Backoff) Reset() { b.next = 0 }

// Every calls fn once per interval until ctx ends, which is no error, or fn fails. A call that
// takes longer delays the next ones.
func Every(ctx context.Context, interval time.Duration, fn func(now time.Time) error) error {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-t.C:
			if err := fn(now); err != nil {
				return err
			}
		}
	}
}

// Until calls fn with pauses until it is done or fails. If ctx ends first it returns the cause.
func Until(ctx context.Context, pause time.Duration, fn func() (done bool, err error)) error {
	for {
		if done, err := fn(); done || err != nil {
			return err
		}
		if !Sleep(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}
