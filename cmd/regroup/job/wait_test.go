package job

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/regroup-io/regroup/cmd/regroup/internal/commandtest"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/services/cluster/clustertest"
)

// TestWaitExitsWithTheOutcome covers a job that has ended, and one that ends during the wait.
func TestWaitExitsWithTheOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		end     events.Body
		view    events.JobView
		exit    int
		message string
	}{
		"succeeded": {events.JobSucceeded{JobEnd: events.JobEnd{Job: mnist}}, events.JobView{State: events.JobStateSucceeded}, 0, "✔ succeeded"},
		"failed":    {events.JobFailed{JobEnd: events.JobEnd{Job: mnist}}, events.JobView{State: events.JobStateFailed, Reason: "no data"}, 10, "no data"},
		"exhausted": {events.JobFailed{JobEnd: events.JobEnd{Job: mnist}}, events.JobView{State: events.JobStateFailed, Code: errcode.Exhausted}, 14, "✘ failed"},
		"stopped":   {events.JobStopped{JobEnd: events.JobEnd{Job: mnist}}, events.JobView{State: events.JobStateStopped}, 11, "■ stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			w := commandtest.New(t)
			w.Job(running())
			ended := make(chan commandtest.Output)
			go func() { ended <- run(t, w, "wait", "mnist") }()
			w.Publish(events.Event{Entity: string(mnist), Body: events.JobFinishing{Job: mnist}})
			c.view.Job, c.view.Submitted, c.view.Ended = mnist, began, clustertest.Now
			w.Job(c.view)
			w.Publish(events.Event{Entity: string(mnist), Body: c.end})
			if o := <-ended; o.Exit != c.exit || o.Out != "" || !strings.Contains(o.Err, c.message) {
				t.Errorf("%+v, want exit %d, %q", o, c.exit, c.message)
			}
			if o := run(t, w, "wait", "-o", "json"); o.Exit != c.exit || !strings.Contains(o.Out, `"outcome": "`+string(c.view.State)+`"`) {
				t.Errorf("after its end: %+v, want exit %d", o, c.exit)
			}
		})
	}
}

// TestWaitGivesUp is in virtual time: on a busy machine the job would not be found within 20 ms.
func TestWaitGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world(t)
		if o := run(t, w, "wait", "mnist", "--timeout", "20ms"); o.Exit != 12 || o.Err != "mnist-7f3a has not ended within 20ms: it is running\n" {
			t.Errorf("%+v", o)
		}
		if o := run(t, w, "wait", "mnist", "--for", "running"); o.Exit != 0 || o.Err != "" {
			t.Errorf("%+v", o)
		}
		if o := run(t, w, "wait", "gpt", "--for", "running", "--timeout", "1s"); o.Exit != 12 || o.Err != "gpt-0c22 is not running within 1.0s: it is waiting\n" {
			t.Errorf("%+v", o)
		}
		if o := run(t, w, "wait", "bert", "--for", "running"); o.Exit != 14 && o.Exit != 10 {
			t.Errorf("%+v", o)
		}
		if o := run(t, w, "wait", "nobody"); o.Exit != 3 {
			t.Errorf("%+v", o)
		}
	})
}
