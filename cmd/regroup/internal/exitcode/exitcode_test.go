package exitcode

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/regroup-io/regroup/events"
)

func TestOf(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"nothing":       {nil, 0},
		"foreign":       {errors.New("boom"), 1},
		"internal":      {events.Errorf(events.Internal, "boom"), 1},
		"newer":         {events.Errorf(events.Newer, "boom"), 1},
		"invalid":       {events.Errorf(events.Invalid, "bad"), 2},
		"findings":      {events.Refuse([]events.Finding{{Path: "name", Message: "is empty"}}), 2},
		"too large":     {events.Errorf(events.TooLarge, "big"), 2},
		"not found":     {fmt.Errorf("status: %w", events.Errorf(events.NotFound, "no job")), 3},
		"conflict":      {events.Errorf(events.Conflict, "raced"), 4},
		"fenced":        {events.Errorf(events.Fenced, "old"), 4},
		"unavailable":   {events.Errorf(events.Unavailable, "gone"), 5},
		"deadline":      {context.DeadlineExceeded, 12},
		"no room":       {events.Errorf(events.Exhausted, "full"), 13},
		"interrupted":   {context.Canceled, 130},
		"decided":       {&Error{Code: JobStopped}, 11},
		"decided, deep": {fmt.Errorf("run: %w", &Error{Code: JobFailed, Err: events.ErrNotFound}), 10},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Of(c.err); got != c.want {
				t.Errorf("Of(%v) = %d, want %d", c.err, got, c.want)
			}
		})
	}
}

func TestOfJob(t *testing.T) {
	for _, c := range []struct {
		state events.JobState
		code  events.Code
		want  int
	}{
		{events.JobHasSucceed, "", 0},
		{events.JobHasFailed, "", 10},
		{events.JobHasFailed, events.Internal, 10},
		{events.JobHasFailed, events.Exhausted, 14},
		{events.JobHasStopped, "", 11},
		{events.JobIsRunning, "", 1},
	} {
		if got := OfJob(c.state, c.code); got != c.want {
			t.Errorf("OfJob(%s, %q) = %d, want %d", c.state, c.code, got, c.want)
		}
	}
}
