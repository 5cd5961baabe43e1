package exitcode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
)

func TestOf(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"nothing":       {nil, 0},
		"foreign":       {errors.New("boom"), 1},
		"internal":      {errcode.Errorf(errcode.Internal, "boom"), 1},
		"newer":         {errcode.Errorf(errcode.Newer, "boom"), 1},
		"invalid":       {errcode.Errorf(errcode.Invalid, "bad"), 2},
		"findings":      {errcode.Refuse([]spec.FieldError{{Path: "name", Message: "is empty"}}), 2},
		"too large":     {errcode.Errorf(errcode.TooLarge, "big"), 2},
		"not found":     {fmt.Errorf("status: %w", errcode.Errorf(errcode.NotFound, "no job")), 3},
		"conflict":      {errcode.Errorf(errcode.Conflict, "raced"), 4},
		"fenced":        {errcode.Errorf(errcode.Fenced, "old"), 4},
		"unavailable":   {errcode.Errorf(errcode.Unavailable, "gone"), 5},
		"deadline":      {context.DeadlineExceeded, 12},
		"no room":       {errcode.Errorf(errcode.Exhausted, "full"), 13},
		"interrupted":   {context.Canceled, 130},
		"decided":       {&Error{Code: JobStopped}, 11},
		"decided, deep": {fmt.Errorf("run: %w", &Error{Code: JobFailed, Err: errcode.ErrNotFound}), 10},
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
		code  errcode.Code
		want  int
	}{
		{events.JobStateSucceeded, "", 0},
		{events.JobStateFailed, "", 10},
		{events.JobStateFailed, errcode.Internal, 10},
		{events.JobStateFailed, errcode.Exhausted, 14},
		{events.JobStateStopped, "", 11},
		{events.JobStateRunning, "", 1},
	} {
		if got := OfJob(c.state, c.code); got != c.want {
			t.Errorf("OfJob(%s, %q) = %d, want %d", c.state, c.code, got, c.want)
		}
	}
}

// TestTheTableOfOutcomesSaysTheSame checks the last column of docs/outcomes.md, which the registry
// generates.
func TestTheTableOfOutcomesSaysTheSame(t *testing.T) {
	data, err := os.ReadFile("../../docs/outcomes.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 9 || strings.TrimSpace(cells[4]) == "also" || strings.HasPrefix(cells[1], "-") {
			continue
		}
		rows++
		state, code, want := events.JobState(strings.TrimSpace(cells[5])), errcode.Code(strings.TrimSpace(cells[6])), strings.TrimSpace(cells[7])
		if got := fmt.Sprint(OfJob(state, code)); state.Terminal() && got != want {
			t.Errorf("%s: %s (%s) exits with %s, the table says %q", strings.TrimSpace(cells[1]), state, code, got, want)
		}
	}
	if rows < 50 {
		t.Errorf("%d rows were read, the table has more", rows)
	}
}
