package wait_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/internal/wait"
)

func TestBackoffDoublesUpToMax(t *testing.T) {
	b := wait.Backoff{First: 20 * time.Millisecond, Max: 100 * time.Millisecond}
	var got []time.Duration
	for range 5 {
		got = append(got, b.Next()/time.Millisecond)
	}
	b.Reset()
	got = append(got, b.Next()/time.Millisecond)
	if want := []time.Duration{20, 40, 80, 100, 100, 20}; !slices.Equal(got, want) {
		t.Errorf("pauses %d, want %d", got, want)
	}
}

func TestEndOfContextEndsEveryWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := errors.New("over")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, over)
		defer cancel()
		if !wait.Sleep(ctx, time.Second) {
			t.Error("a pause was ended before the context")
		}
		calls := 0
		if err := wait.Until(ctx, time.Second, func() (bool, error) { calls++; return calls == 3, nil }); err != nil || calls != 3 {
			t.Errorf("%d calls: %v", calls, err)
		}
		ticks := 0
		if err := wait.Every(ctx, 10*time.Second, func(time.Time) error { ticks++; return nil }); err != nil || ticks != 5 {
			t.Errorf("%d ticks: %v", ticks, err)
		}
		if err := wait.Until(ctx, time.Second, func() (bool, error) { return false, nil }); !errors.Is(err, over) {
			t.Errorf("Until returned %v", err)
		}
		if b := (wait.Backoff{First: time.Hour}); wait.Sleep(ctx, time.Hour) || b.Sleep(ctx) {
			t.Error("a pause outlasts its context")
		}
	})
}

func TestAfterIsOverWhenItIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		call := func() { time.Sleep(time.Second); calls++ }
		for after, want := range map[time.Duration]int{
			time.Second: 0, 2500 * time.Millisecond: 1, time.Minute: 1, // the second stop waits for the call
		} {
			calls = 0
			stop := wait.After(2*time.Second, call)
			time.Sleep(after)
			stop()
			stop()
			if calls != want {
				t.Errorf("stopped after %s it was called %d times, want %d", after, calls, want)
			}
		}
	})
}
