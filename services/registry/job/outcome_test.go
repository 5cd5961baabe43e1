package job_test

import (
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
)

// outcomes is the table of how jobs end, which the docs show. Each row begins with generation g1
// running, with the two members a/0=w1 and b/0=w2.
var outcomes = []struct {
	name     string
	recovery string
	failures string
	also     string // limits of the job
	script   string
	state    events.JobState
	code     errcode.Code
}{
	{
		"all done, all exit 0", "in-process", "0", "",
		"done a/0=w1 g=1; done b/0=w2 g=1; exit a/0=w1 g=1 done; exit b/0=w2 g=1 done", events.JobStateSucceeded, "",
	},
	{
		"one done and exit 0, the other crashes after it", "in-process", "0", "",
		"done a/0=w1 g=1; exit b/0=w2 g=1 code=1; exit a/0=w1 g=1 done", events.JobStateSucceeded, "",
	},
	{
		"all done, one exits 0, the other fails in what it does then", "in-process", "20", "",
		"done a/0=w1 g=1; done b/0=w2 g=1; exit a/0=w1 g=1 code=1 done; exit b/0=w2 g=1 done", events.JobStateFailed, "",
	},
	{
		"the same, and its exit is heard before its report", "in-process", "0", "",
		"exit a/0=w1 g=1 code=1 done; done a/0=w1 g=1; done b/0=w2 g=1; exit b/0=w2 g=1 done", events.JobStateFailed, "",
	},
	{
		"all done, one exits 0, the other is killed from outside", "in-process", "0", "",
		"done a/0=w1 g=1; done b/0=w2 g=1; exit a/0=w1 g=1 code=-1 signal=SIGKILL done; exit b/0=w2 g=1 done", events.JobStateSucceeded, "",
	},
	{
		"all done, one exits 0, the other is killed for its memory", "in-process", "0", "",
		"done a/0=w1 g=1; done b/0=w2 g=1; exit a/0=w1 g=1 code=-1 signal=SIGKILL oom done; exit b/0=w2 g=1 done", events.JobStateFailed, "",
	},
	{
		"one done and exit 0, the other's node is lost after it", "in-process", "0", "",
		"done a/0=w1 g=1; exit a/0=w1 g=1 done; lost b n=1", events.JobStateSucceeded, "",
	},
	{
		"one done and exit 0, the other lingers and is stopped", "in-process", "0", "",
		"done a/0=w1 g=1; exit a/0=w1 g=1 done; wait 30s; exit b/0=w2 g=1 code=-1 asked", events.JobStateSucceeded, "",
	},
	{
		"one done and exit 0, the other lingers and cannot be stopped", "in-process", "0", "",
		"done a/0=w1 g=1; exit a/0=w1 g=1 done; wait 80s", events.JobStateSucceeded, "",
	},
	{
		"done, but every process crashes at the end", "in-process", "20", "",
		"done a/0=w1 g=1; exit a/0=w1 g=1 code=139 done; exit b/0=w2 g=1 code=1", events.JobStateFailed, "",
	},
	{"exit 0 without done, no failure allowed", "in-process", "0", "", "exit a/0=w1 g=1", events.JobStateFailed, errcode.Exhausted},
	{"exit 0 without done, within the budget", "in-process", "1", "", "exit a/0=w1 g=1", events.JobStateRunning, ""},
	{"a crash, no failure allowed", "in-process", "0", "", "exit a/0=w1 g=1 code=1", events.JobStateFailed, errcode.Exhausted},
	{"a crash within the budget", "in-process", "1", "", "exit a/0=w1 g=1 code=1", events.JobStateRunning, ""},
	{"two crashes in one generation, one allowed: one fault", "in-process", "1", "", "exit a/0=w1 g=1 code=1; exit b/0=w2 g=1 code=1", events.JobStateRunning, ""},
	{
		"crashes in two generations, one allowed", "in-process", "1", "",
		"exit a/0=w1 g=1 code=1; open 2 cause=worker-failed; seal 2 cause=worker-failed b/0=w2; exit b/0=w2 g=2 code=1", events.JobStateFailed, errcode.Exhausted,
	},
	{
		"all crash of one fault, one failure allowed", "in-process", "1", "",
		"exit a/0=w1 g=1 code=1; exit b/0=w2 g=1 code=1; start a/0=w3#2; start b/0=w4#2", events.JobStateRunning, "",
	},
	{
		"a replacement crashes before it is taken in, one allowed", "in-process", "1", "",
		"exit b/0=w2 g=1 code=1; start b/0=w3#2; exit b/0=w3#2 code=1", events.JobStateFailed, errcode.Exhausted,
	},
	{
		"failures as old as the window no longer count", "in-process", "1", "per=1h",
		"exit b/0=w2 g=1 code=1; seal 2 cause=worker-failed a/0=w1; wait 1h; exit a/0=w1 g=2 code=1", events.JobStateRunning, "",
	},
	{"a worker is stopped", "in-process", "0", "", "exit b/0=w2 g=1 code=-1 asked", events.JobStateRunning, ""},
	{"a node leaves as planned", "in-process", "0", "", "left b n=1", events.JobStateRunning, ""},
	{"a node is lost, no failure allowed", "in-process", "0", "", "lost b n=1", events.JobStateFailed, errcode.Exhausted},
	{"a node is lost within the budget", "in-process", "1", "", "lost b n=1", events.JobStateRunning, ""},
	{
		"stopped, all end", "in-process", "0", "",
		"stop; exit a/0=w1 g=1 code=-1 asked; exit b/0=w2 g=1 code=-1 asked", events.JobStateStopped, "",
	},
	{
		"stopped, one crashes on the way", "in-process", "0", "",
		"stop; exit a/0=w1 g=1 code=-1 asked; exit b/0=w2 g=1 code=1", events.JobStateStopped, "",
	},
	{"stopped, nothing is heard any more", "in-process", "0", "", "stop; wait 40s", events.JobStateStopped, ""},
	{
		"stopped when one was done already", "in-process", "0", "",
		"done a/0=w1 g=1; exit a/0=w1 g=1 done; stop; exit b/0=w2 g=1 code=-1 asked", events.JobStateSucceeded, "",
	},
	{"any program: all exit 0", "restart", "0", "", "exit a/0=w1 g=1; exit b/0=w2 g=1", events.JobStateSucceeded, ""},
	{"any program: one exits 0, the other runs on", "restart", "0", "", "exit a/0=w1 g=1; wait 24h", events.JobStateRunning, ""},
	{
		"any program: it fails as it begins, by an error that is in the program", "restart", "20", "",
		"exit a/0=w1 g=1 code=1 says=NameError:_name_'x'_is_not_defined; exit b/0=w2 g=1 code=1 says=NameError:_name_'x'_is_not_defined", events.JobStateFailed, errcode.Invalid,
	},
	{
		"any program: it fails as it begins, by an error that may pass", "restart", "20", "",
		"exit a/0=w1 g=1 code=1 says=ConnectionRefusedError:_refused; exit b/0=w2 g=1 code=1 says=ConnectionRefusedError:_refused", events.JobStateRunning, "",
	},
	{
		"any program: one exits 0, the other fails, within the budget", "restart", "1", "",
		"exit a/0=w1 g=1; exit b/0=w2 g=1 code=1", events.JobStateRunning, "",
	},
	{
		"any program: one exits 0, the other fails, no failure allowed", "restart", "0", "",
		"exit a/0=w1 g=1; exit b/0=w2 g=1 code=1", events.JobStateFailed, errcode.Exhausted,
	},
	{
		"any program: all fail of one fault, one failure allowed", "restart", "1", "",
		"exit a/0=w1 g=1 code=1; exit b/0=w2 g=1 code=1", events.JobStateRunning, "",
	},
	{
		"any program: the group fails again, one failure allowed", "restart", "1", "",
		"exit a/0=w1 g=1 code=1; seal 2 cause=worker-failed a/0=w3#2 b/0=w4; exit b/0=w4 g=2 code=1", events.JobStateFailed, errcode.Exhausted,
	},
	{"the command does not exist", "restart", "20", "", "exit a/0=w1 g=1 code=127", events.JobStateFailed, errcode.Invalid},
	{
		"127 once the program has worked is a failure like others", "restart", "20", "",
		"ready a/0=w1 g=1 rank=0; exit a/0=w1 g=1 code=127", events.JobStateRunning, "",
	},
	{
		"one succeeds and another is lost during a planned change", "in-process", "1", "",
		"ready a/0=w1 g=1 rank=0 step=1; scale workers=1:1; open 2 cause=shrink; done a/0=w1 g=1; exit a/0=w1 g=1 done; lost b n=1", events.JobStateSucceeded, "",
	},
	{
		"lost during a planned change, no failure allowed", "in-process", "0", "",
		"ready a/0=w1 g=1 rank=0 step=1; scale workers=1:1; open 2 cause=shrink; lost b n=1", events.JobStateFailed, errcode.Exhausted,
	},
	{
		"a planned change, no failure allowed", "in-process", "0", "",
		"ready a/0=w1 g=1 rank=0 step=1; scale workers=1:1; open 2 cause=shrink; exit b/0=w2 g=1 code=-1 asked; seal 2 cause=shrink a/0=w1", events.JobStateRunning, "",
	},
	{
		"the same step kills three times", "in-process", "20", "samestep=3",
		"ready a/0=w1 g=1 rank=0 step=1; exit a/0=w1 g=1 code=1 commit=40; seal 2 cause=worker-failed b/0=w2 commit=40; exit b/0=w2 g=2 code=1 commit=40 in=1; " +
			"seal 3 cause=worker-failed a/0=w3#2 commit=40 in=1; exit a/0=w3#2 g=3 code=1", events.JobStateFailed, errcode.Invalid,
	},
	{
		"three steps kill once each", "in-process", "20", "samestep=3",
		"ready a/0=w1 g=1 rank=0 step=1; exit a/0=w1 g=1 code=1 commit=40; seal 2 cause=worker-failed b/0=w2 commit=40; exit b/0=w2 g=2 code=1 commit=50; " +
			"seal 3 cause=worker-failed a/0=w3#2 commit=50; exit a/0=w3#2 g=3 code=1 commit=60", events.JobStateRunning, "",
	},
	{
		"killed from outside three times at one step", "in-process", "20", "samestep=3",
		"ready a/0=w1 g=1 rank=0 step=1; exit a/0=w1 g=1 signal=SIGKILL code=-1 commit=40; seal 2 cause=worker-failed b/0=w2 commit=40; lost b n=1; " +
			"seal 3 cause=node-lost a/0=w3#2 commit=40 in=1; exit a/0=w3#2 g=3 signal=SIGTERM code=-1", events.JobStateRunning, "",
	},
	{
		"fails three times before its first step", "in-process", "20", "samestep=3",
		"exit a/0=w1 g=1 code=1; start a/0=w3#2; exit a/0=w3#2 code=1; start a/0=w4#3; exit a/0=w4#3 code=1", events.JobStateFailed, errcode.Invalid,
	},
	{
		"a newcomer dies three times while the job makes steps", "in-process", "20", "samestep=3",
		"ready a/0=w1 g=1 rank=0 step=1; exit b/0=w2 g=1 code=1 commit=5; seal 2 cause=worker-failed a/0=w1 commit=5; " +
			"exit b/0=w3#2 code=1; exit b/0=w4#3 code=1; exit b/0=w5#4 code=1", events.JobStateRunning, "",
	},
	{
		"reset limit 0: the first regroup", "in-process", "20", "resets=0",
		"exit b/0=w2 g=1 code=1; open 2 cause=worker-failed", events.JobStateFailed, errcode.Exhausted,
	},
	{"reset limit 0: no regroup", "in-process", "20", "resets=0", "ready a/0=w1 g=1 rank=0 step=1; wait 24h", events.JobStateRunning, ""},
	{
		"reset limit 1: one regroup", "in-process", "20", "resets=1",
		"exit b/0=w2 g=1 code=1; open 2 cause=worker-failed; seal 2 cause=worker-failed a/0=w1", events.JobStateRunning, "",
	},
	{
		"reset limit 1: the second regroup, a planned one", "in-process", "20", "resets=1",
		"exit b/0=w2 g=1 code=1; open 2 cause=worker-failed; seal 2 cause=worker-failed a/0=w1; open 3 cause=shrink", events.JobStateFailed, errcode.Exhausted,
	},
	{
		"below min for the elastic timeout", "in-process", "20", "timeout=10m",
		"lost a n=1; lost b n=1; open 2 cause=node-lost; wait 10m", events.JobStateFailed, errcode.Unavailable,
	},
	{
		"below min for less than the elastic timeout", "in-process", "20", "timeout=10m",
		"lost a n=1; lost b n=1; open 2 cause=node-lost; wait 9m; seal 2 cause=node-lost c/0=w3; wait 24h", events.JobStateRunning, "",
	},
	{
		"a hang, all come back, no failure allowed", "in-process", "0", "hang=5m",
		"ready a/0=w1 g=1 rank=0 step=7; wait 5m; standstill g=1 step=7 for=5m; open 2 cause=hang; seal 2 cause=hang a/0=w1 b/0=w2", events.JobStateFailed, errcode.Exhausted,
	},
	{
		"a hang, one does not come back, within the budget", "in-process", "1", "hang=5m",
		"ready a/0=w1 g=1 rank=0 step=7; wait 5m; standstill g=1 step=7 for=5m; open 2 cause=hang; seal 2 cause=hang a/0=w1; wait 5s", events.JobStateRunning, "",
	},
	{
		"a hang, nobody comes back, no failure allowed", "in-process", "0", "hang=5m",
		"ready a/0=w1 g=1 rank=0 step=7; wait 5m; standstill g=1 step=7 for=5m; open 2 cause=hang; missed 2 a/0=w1 b/0=w2; wait 5s", events.JobStateFailed, errcode.Exhausted,
	},
	{
		"a false alarm: peers accuse each other and all come back", "in-process", "0", "",
		"ready a/0=w1 g=1 rank=0 step=7; open 2 cause=worker-lost; seal 2 cause=worker-lost a/0=w1 b/0=w2", events.JobStateRunning, "",
	},
	{
		"a false alarm: a replica has heard no step that another one has", "in-process", "0", "hang=5m",
		"ready a/0=w1 g=1 rank=0 step=7; wait 5m; progress g=1 step=900; standstill g=1 step=7 for=5m", events.JobStateRunning, "",
	},
	{
		"a node is quarantined meanwhile: its worker is moved as planned", "in-process", "1", "",
		"ready a/0=w1 g=1 rank=0 step=7; exit b/0=w2 g=1 code=1; place n=2 a/0 c/0; seal 2 cause=worker-failed a/0=w1; exit b/0=w3#2 code=-1 asked; " +
			"start c/0=w4; open 3 cause=grow; seal 3 cause=grow a/0=w1 c/0=w4", events.JobStateRunning, "",
	},
	{
		"any program: killed from outside, no failure allowed", "restart", "0", "",
		"exit a/0=w1 g=1 signal=SIGKILL code=-1", events.JobStateFailed, errcode.Exhausted,
	},
	{
		"any program: the same step kills three times", "restart", "20", "samestep=3",
		"exit a/0=w1 g=1 code=1 step=40; seal 2 cause=worker-failed a/0=w3#2 b/0=w4; exit a/0=w3#2 g=2 code=1 step=40; " +
			"seal 3 cause=worker-failed a/0=w5#3 b/0=w6; exit b/0=w6 g=3 code=1 step=40", events.JobStateFailed, errcode.Invalid,
	},
	{
		"any program: one that reports no steps fails three times", "restart", "20", "samestep=3",
		"exit a/0=w1 g=1 code=1; seal 2 cause=worker-failed a/0=w3#2 b/0=w4; exit a/0=w3#2 g=2 code=1; " +
			"seal 3 cause=worker-failed a/0=w5#3 b/0=w6; exit b/0=w6 g=3 code=1", events.JobStateRunning, "",
	},
	{
		"any program: a hang, the group is started again, no failure allowed", "restart", "0", "hang=5m",
		"progress g=1 step=7; wait 5m; standstill g=1 step=7 for=5m; open 2 cause=hang; exit a/0=w1 g=1 code=-1 asked; exit b/0=w2 g=1 code=-1 asked; " +
			"seal 2 cause=hang a/0=w3 b/0=w4", events.JobStateFailed, errcode.Exhausted,
	},
}

func TestOutcomes(t *testing.T) {
	for _, row := range outcomes {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld()
			script := "submit workers=1:2 recovery=" + row.recovery + " failures=" + row.failures + " " + row.also +
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
