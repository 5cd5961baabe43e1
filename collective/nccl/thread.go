package nccl

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// task is work for the device's thread.
type task struct {
	run  func() error
	done chan error // holds one, so that the thread never waits for who gave up
}

// errThreadSpoiled ends the thread after its task: it is inside a group of calls that
// can neither be finished nor left.
var errThreadSpoiled = errors.New("the device's thread was replaced")

// serve is the device's thread. It makes every native call of the device but those
// that end a communicator, one after the other.
func (d *Device) serve() {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if d.context != 0 {
		// In place of a spoiled thread. If this fails, so will every call, and say it.
		d.lib.cuda.CtxSetCurrent(d.context)
	}
	ticker := time.NewTicker(d.lib.opt.WatchEvery)
	defer ticker.Stop()
	for {
		ticks := ticker.C
		if len(d.watched) == 0 {
			ticks = nil
		}
		select {
		case t := <-d.tasks:
			err := t.run()
			t.done <- err
			if errors.Is(err, errThreadSpoiled) {
				d.threads.Go(d.serve)
				return
			}
		case <-ticks:
			for c := range d.watched {
				c.look()
			}
		case <-d.quit:
			return
		}
	}
}

// do runs f on the device's thread. It returns the cause of ctx if that ends before f
// begins. Once f runs it is waited for, for it touches native state; if it outlasts
// ctx by more than Options.CallGrace the error is a *StuckError, and f may still be
// running.
func (d *Device) do(ctx context.Context, op string, f func() error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", op, context.Cause(ctx))
	}
	t := &task{run: f, done: make(chan error, 1)}
	select {
	case d.tasks <- t:
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", op, context.Cause(ctx))
	case <-d.quit:
		return fmt.Errorf("%s: device %d: %w", op, d.ordinal, ErrClosed)
	}
	select {
	case err := <-t.done:
		return err
	case <-ctx.Done():
	}
	grace := time.NewTimer(d.lib.opt.CallGrace)
	defer grace.Stop()
	select {
	case err := <-t.done:
		return err
	case <-grace.C:
		return &StuckError{Op: op, After: d.lib.opt.CallGrace}
	}
}

const (
	// askFor is how long the thread keeps asking before it lets others in. Most small
	// operations end within it, and a hand-over costs as much.
	askFor   = 20 * time.Microsecond
	maxPause = time.Millisecond
)

// poll asks on the device's thread until there is an answer, an error, or no ctx.
func (d *Device) poll(ctx context.Context, op string, ask func() (bool, error)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause := askFor; ; pause = min(2*pause, maxPause) {
		var done bool
		err := d.do(ctx, op, func() (err error) {
			for end := time.Now().Add(askFor); ; {
				if done, err = ask(); done || err != nil || time.Now().After(end) {
					return err
				}
			}
		})
		if err != nil || done {
			return err
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", op, context.Cause(ctx))
		}
	}
}
