package job_test

import (
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
)

// outcomes is the table of how a job ends; docs show it. Each row begins with generation g1 of two members, a/0=w1 and
// b/0=w2, at work.
var outcomes = []struct {
	name     string
	recovery string
	failures string
	script   string
	state    events.JobState
	code     events.Code
}{
	{
		"all done, all exit 0", "in-process", "0",
		"done a/0=w1 g=1; done b/0=w2 g=1; exit a/0=w1 g=1 done; exit b/0=w2 g=1 done", events.JobHasSucceed, "",
	},
	{
		"one done and exit 0, the other crashes after it", "in-process", "0",
		"done a/0=w1 g=1; exit b/0=w2 g=1 code=1; exit a/0=w1 g=1 done", events.JobHasSucceed, "",
	},
	{
		"one done and exit 0, the other's node is lost after it", "in-process", "0",
		"done a/0=w1 g=1; exit a/0=w1 g=1 done; lost b n=1", events.JobHasSucceed, "",
	},
	{
		"one done and exit 0, the other lingers and is stopped", "in-process", "0",
		"done a/0=w1 g=1; exit a/0=w1 g=1 done; wait 30s; exit b/0=w2 g=1 code=-1 asked", events.JobHasSucceed, "",
	},
	{
		"one done and exit 0, the other lingers and cannot be stopped", "in-process", "0",
		"done a/0=w1 g=1; exit a/0=w1 g=1 done; wait 80s", events.JobHasSucceed, "",
	},
	{
		"done, but every process crashes at the end", "in-process", "20",
		"done a/0=w1 g=1; exit a/0=w1 g=1 code=139 done; exit b/0=w2 g=1 code=1", events.JobHasFailed, "",
	},
	{"exit 0 without done, no failure allowed", "in-process", "0", "exit a/0=w1 g=1", events.JobHasFailed, events.Exhausted},
	{"exit 0 without done, within the budget", "in-process", "1", "exit a/0=w1 g=1", events.JobIsRunning, ""},
	{"a crash, no failure allowed", "in-process", "0", "exit a/0=w1 g=1 code=1", events.JobHasFailed, events.Exhausted},
	{"a crash within the budget", "in-process", "1", "exit a/0=w1 g=1 code=1", events.JobIsRunning, ""},
	{"two crashes, one allowed", "in-process", "1", "exit a/0=w1 g=1 code=1; exit b/0=w2 g=1 code=1", events.JobHasFailed, events.Exhausted},
	{"a worker is told to leave", "in-process", "0", "exit b/0=w2 g=1 code=-1 asked", events.JobIsRunning, ""},
	{"a node leaves as planned", "in-process", "0", "left b n=1", events.JobIsRunning, ""},
	{"a node is lost, no failure allowed", "in-process", "0", "lost b n=1", events.JobHasFailed, events.Exhausted},
	{"a node is lost within the budget", "in-process", "1", "lost b n=1", events.JobIsRunning, ""},
	{
		"stopped, all end", "in-process", "0",
		"stop; exit a/0=w1 g=1 code=-1 asked; exit b/0=w2 g=1 code=-1 asked", events.JobHasStopped, "",
	},
	{
		"stopped, one crashes on the way", "in-process", "0",
		"stop; exit a/0=w1 g=1 code=-1 asked; exit b/0=w2 g=1 code=1", events.JobHasStopped, "",
	},
	{"stopped, nothing is heard any more", "in-process", "0", "stop; wait 40s", events.JobHasStopped, ""},
	{
		"stopped when one was done already", "in-process", "0",
		"done a/0=w1 g=1; exit a/0=w1 g=1 done; stop; exit b/0=w2 g=1 code=-1 asked", events.JobHasSucceed, "",
	},
	{"any program: all exit 0", "restart", "0", "exit a/0=w1 g=1; exit b/0=w2 g=1", events.JobHasSucceed, ""},
	{"any program: one exits 0, the other runs on", "restart", "0", "exit a/0=w1 g=1; wait 24h", events.JobIsRunning, ""},
	{
		"any program: one exits 0, the other fails, within the budget", "restart", "1",
		"exit a/0=w1 g=1; exit b/0=w2 g=1 code=1", events.JobIsRunning, "",
	},
	{
		"any program: one exits 0, the other fails, no failure allowed", "restart", "0",
		"exit a/0=w1 g=1; exit b/0=w2 g=1 code=1", events.JobHasFailed, events.Exhausted,
	},
	{
		"any program: all fail of one fault, one failure allowed", "restart", "1",
		"exit a/0=w1 g=1 code=1; exit b/0=w2 g=1 code=1", events.JobIsRunning, "",
	},
	{
		"any program: the group fails again, one failure allowed", "restart", "1",
		"exit a/0=w1 g=1 code=1; seal 2 cause=worker-failed a/0=w3#2 b/0=w4; exit b/0=w4 g=2 code=1", events.JobHasFailed, events.Exhausted,
	},
	{"the command does not exist", "restart", "20", "exit a/0=w1 g=1 code=127", events.JobHasFailed, events.Invalid},
	{
		"127 once the program has worked is a failure like others", "restart", "20",
		"ready a/0=w1 g=1 rank=0; exit a/0=w1 g=1 code=127", events.JobIsRunning, "",
	},
}

func TestOutcomes(t *testing.T) {
	for _, row := range outcomes {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld()
			script := "submit workers=1:2 recovery=" + row.recovery + " failures=" + row.failures +
				"; place n=1 a/0 b/0; seal 1 a/0=w1 b/0=w2; " + row.script
			for line := range strings.SplitSeq(script, ";") {
				words := strings.Fields(line)
				if words[0] == "wait" {
					d, err := time.ParseDuration(words[1])
					if err != nil {
						t.Fatal(err)
					}
					w.wait(t, d, func(events.Decision) {})
					continue
				}
				body, number := parse(t, words)
				w.step(t, body, number)
			}
			v := w.s.View
			if v.State != row.state || v.Code != row.code {
				t.Errorf("%s (%s): %s, want %s (%s)", v.State, v.Code, v.Reason, row.state, row.code)
			}
			if v.State.Terminal() && (v.Reason == "" || v.Ended.IsZero()) {
				t.Errorf("ended at %v because of %q: an end has a time and a reason", v.Ended, v.Reason)
			}
		})
	}
}
