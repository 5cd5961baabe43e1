package job

import (
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/cmd/regroup/internal/commandtest"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/cluster/clustertest"
)

// TestTheLastJobIsMeant checks that reading commands default to the last job, and say so.
func TestTheLastJobIsMeant(t *testing.T) {
	w := world(t)
	for _, line := range []string{"status", "explain", "logs", "events", "timeline", "trace", "status -o json"} {
		words := strings.Split(line, " ")
		got, named := run(t, w, words...), run(t, w, append(words, "gpt-0c22")...)
		if got.Exit != 0 || got.Out != named.Out || got.Err != "the last job, gpt-0c22:\n" {
			t.Errorf("%s: %+v, want the output for gpt-0c22: %s", line, got, named.Out)
		}
	}
	if o := run(t, commandtest.New(t), "status"); o.Exit != 3 || !strings.Contains(o.Err, "there is no job yet") {
		t.Errorf("without any: %+v", o)
	}
}

// TestWhatChangesAJobTakesNoneThatWasNotMeant checks that changing commands default to the only job
// that has not ended, unless it belongs to another user.
func TestWhatChangesAJobTakesNoneThatWasNotMeant(t *testing.T) {
	const mine, local = "/regroup/cli/test", "/client/run/local"
	job := func(name string, by string, state events.JobState) events.JobView {
		return events.JobView{Job: ident.JobID(name), By: by, State: state, Spec: spec.Job{Workers: spec.Workers{Min: 1, Max: 1}}}
	}
	external := job("joined-0001", "/client/agent/join", events.JobStateRunning)
	external.Spec.Rendezvous = &spec.Rendezvous{}
	for name, c := range map[string]struct {
		jobs    []events.JobView
		line    string
		exit    int
		message string
	}{
		"the only one":         {[]events.JobView{job("a-0001", mine, events.JobStateRunning), job("b-0001", mine, events.JobStateFailed)}, "stop", 0, "the only job that has not ended, a-0001:\na-0001 is stopping\n"},
		"one of this machine":  {[]events.JobView{job("a-0001", local, events.JobStateRunning)}, "stop --now", 0, "the only job that has not ended, a-0001:\na-0001 is stopping\n"},
		"to scale":             {[]events.JobView{job("a-0001", mine, events.JobStateRunning)}, "scale 2:3", 0, "the only job that has not ended, a-0001:\na-0001 wants 2-3 workers\n"},
		"none":                 {[]events.JobView{job("b-0001", mine, events.JobStateFailed)}, "stop", 3, "there is no job that could be meant: see regroup ls\n"},
		"several":              {[]events.JobView{job("b-0001", mine, events.JobStateWaiting), job("a-0001", mine, events.JobStateRunning)}, "stop", 2, "name the job: 2 have not ended: a-0001, b-0001\n"},
		"somebody else's":      {[]events.JobView{job("a-0001", "/client/ada", events.JobStateRunning)}, "scale 4", 2, "name the job: a-0001, the only one that has not ended, was submitted by /client/ada\n"},
		"a joined one, to end": {[]events.JobView{external}, "stop", 2, "name the job: joined-0001, the only one that has not ended, was submitted by /client/agent/join\n"},
		"no joined one":        {[]events.JobView{job("a-0001", mine, events.JobStateRunning)}, "close", 3, "there is no job that could be meant: see regroup ls\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := commandtest.New(t)
			for i, v := range c.jobs {
				v.Submitted = clustertest.Now.Add(time.Duration(i) * time.Second)
				w.Job(v)
			}
			w.Answer(func(e events.Event) {
				switch b := e.Body.(type) {
				case events.JobStop:
					w.Publish(events.Event{Entity: string(b.Job), Cause: e.ID, Body: events.JobStopping{Job: b.Job}})
				case events.JobScale:
					w.Publish(events.Event{Entity: string(b.Job), Cause: e.ID, Body: events.JobScaled{Job: b.Job}})
				}
			})
			if o := run(t, w, strings.Split(c.line, " ")...); o.Exit != c.exit || o.Err != c.message {
				t.Errorf("%s: %+v, want exit %d, %q", c.line, o, c.exit, c.message)
			}
		})
	}
}

// TestABeginningOfSeveral: it means the only one that has not ended, and that is said.
func TestABeginningOfSeveral(t *testing.T) {
	w := world(t)
	for id, state := range map[ident.JobID]events.JobState{"att-1111": events.JobStateFailed, "att-2222": events.JobStateRunning, "att-3333": events.JobStateSucceeded} {
		w.Job(events.JobView{Job: id, State: state, Submitted: clustertest.Now})
	}
	if o := run(t, w, "status", "att", "-o", "jsonpath=$.job"); o.Exit != 0 || o.Out != "att-2222\n" || !strings.Contains(o.Err, "att-2222, the only one of 3 that begin with \"att\" and has not ended") {
		t.Errorf("one runs: %+v", o)
	}
	w.Job(events.JobView{Job: "att-4444", State: events.JobStateWaiting, Submitted: clustertest.Now})
	if o := run(t, w, "status", "att"); o.Exit != 2 || !strings.Contains(o.Err, "is the beginning of 4 jobs: att-1111, att-2222, att-3333, att-4444") {
		t.Errorf("two have not ended: %+v", o)
	}
}

// TestTheQueueInALine: who is before a job in the queue, and of a long reason what a line has room
// for.
func TestTheQueueInALine(t *testing.T) {
	w := commandtest.New(t)
	for id, state := range map[ident.JobID]events.JobState{"big-0001": events.JobStateWaiting, "small-0002": events.JobStateWaiting} {
		w.Job(events.JobView{Job: id, State: state, Reason: "needs 1 slot, is queued", Submitted: clustertest.Now})
	}
	w.Job(events.JobView{Job: "lost-0003", State: events.JobStateFailed, Reason: strings.Repeat("a long reason ", 20), Submitted: clustertest.Now})
	w.Put(events.BucketPlacements, events.PoolKey, events.PoolView{
		Jobs:  map[ident.JobID]events.PlacementView{"big-0001": {Workers: spec.Workers{Min: 8, Max: 8}}, "small-0002": {Workers: spec.Workers{Min: 1, Max: 1}}},
		Queue: []ident.JobID{"big-0001", "small-0002"}, Head: "big-0001", Capacity: "3 free of 8 on 2 nodes", MaxSlots: 8,
	})
	o := run(t, w, "ls")
	for _, want := range []string{"needs 1 slot, is number 2 of 2 in the queue behind big-0001, which needs 8; 3 free of 8 on 2 nodes\n", "long reason a…"} {
		if !strings.Contains(o.Out, want) {
			t.Errorf("no %q in:\n%s", want, o.Out)
		}
	}
	if o := run(t, w, "ls", "-o", "wide"); !strings.Contains(o.Out, strings.TrimSpace(strings.Repeat("a long reason ", 20))) {
		t.Errorf("wide: %s", o.Out)
	}
}

// TestNoSuchLine: which nodes, ranks and generations there are, where one is chosen that never was.
func TestNoSuchLine(t *testing.T) {
	w := world(t)
	for args, want := range map[string]string{
		"mnist --node nope": "there is no such line: the nodes of the job are node-a, node-c\n",
		"mnist --rank 7-9":  "there is no such line: the ranks of the job are 0 to 1\n",
		"mnist --gen 7":     "there is no such line: the job has no generation 7; the newest is 2\n",
		"mnist --rank 0":    "there is no such line\n",
		"gpt --rank 0":      "there is no such line: no worker has started yet\n",
	} {
		if o := run(t, w, append([]string{"logs"}, strings.Fields(args)...)...); o.Exit != 0 || o.Err != want {
			t.Errorf("logs %s: exit %d, %s%s, want %s", args, o.Exit, o.Out, o.Err, want)
		}
	}
}
