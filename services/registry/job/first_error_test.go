package job_test

import (
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
)

// beginning is a job of two workers that allows no failure.
const beginning = `submit workers=2:2 failures=0 recovery=restart
place n=1 a/0 b/0
seal 1 a/0=w1 b/0=w2
start a/0=w1
start b/0=w2
ready a/0=w1 g=1 rank=0
`

// TestTheFirstErrorIsTheEarliest: what was raised first is the first error, whichever exit arrives
// first, and also of a worker that was stopped before it had ended.
func TestTheFirstErrorIsTheEarliest(t *testing.T) {
	const first = "exit a/0=w1 g=1 code=1 exception=RuntimeError:_a_consequence age=20\n"
	for name, c := range map[string]struct{ exit, want string }{
		"raised before, ended by itself": {"exit b/0=w2 g=1 code=1 exception=ValueError:_the_cause age=5 before=300", "ValueError"},
		"raised before, stopped":         {"exit b/0=w2 g=1 code=-1 signal=SIGTERM asked exception=ValueError:_the_cause age=5 before=300", "ValueError"},
		"exit before, arrives later":     {"exit b/0=w2 g=1 code=1 exception=ValueError:_the_cause age=30", "ValueError"},
		"raised after, stopped":          {"exit b/0=w2 g=1 code=-1 signal=SIGTERM asked exception=ValueError:_the_cause age=5 before=5", "RuntimeError"},
		"stopped without an exception":   {"exit b/0=w2 g=1 code=-1 signal=SIGTERM asked age=500", "RuntimeError"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			for line := range strings.Lines(beginning + first + c.exit) {
				body, number := parse(t, strings.Fields(line))
				w.step(t, body, number)
			}
			f := w.s.View.FirstError
			if f == nil || f.Exception == nil || f.Exception.Type != c.want {
				t.Errorf("the first error is %+v, want %s", f, c.want)
			}
			if w.s.View.ExitsMissing() {
				t.Error("all workers have ended")
			}
		})
	}
}

// TestTheTimeOfTheBrokerCounts: two exits are compared by when they were stored, not by when a busy
// registry applies them.
func TestTheTimeOfTheBrokerCounts(t *testing.T) {
	w := newWorld()
	for line := range strings.Lines(beginning) {
		body, number := parse(t, strings.Fields(line))
		w.step(t, body, number)
	}
	for _, x := range []struct {
		exit            string
		applied, stored time.Duration
	}{
		{"exit a/0=w1 g=1 code=1 exception=RuntimeError:_a_consequence age=5", 15 * time.Millisecond, 12 * time.Millisecond},
		{"exit b/0=w2 g=1 code=1 exception=ValueError:_the_cause age=5", 200 * time.Millisecond, 10 * time.Millisecond},
	} {
		w.now = epoch.Add(x.applied)
		body, _ := parse(t, strings.Fields(x.exit))
		w.s, _ = w.m.Step(w.s, events.Input{ID: x.exit, Source: "agent", Body: body, Stored: epoch.Add(x.stored)}, w.now)
	}
	if f := w.s.View.FirstError; f == nil || f.Exception == nil || f.Exception.Type != "ValueError" {
		t.Errorf("the first error is %+v", f)
	}
}
