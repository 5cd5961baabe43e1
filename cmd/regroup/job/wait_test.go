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

// TestWaitForACondition: steps and workers are those of the moment, and a value is that of the
// program. A job that ends before is an error, with the code of what has happened.
func TestWaitForACondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world(t)
		w.Job(events.JobView{Job: "done-0001", State: events.JobStateSucceeded, Step: 400, Reported: map[string]events.Metric{"loss": {Value: 0.25}}, Submitted: began, Ended: clustertest.Now})
		for line, want := range map[string]struct {
			exit    int
			message string
		}{
			"wait mnist --for step>=4650":              {0, ""}, // the view has 4612
			"wait mnist --for step>=4651 --timeout 1s": {12, "mnist-7f3a: step>=4651 was not reached within 1.0s: its step is 4650"},
			"wait mnist --for workers>=1":              {0, ""},
			"wait mnist --for workers>=2 --timeout 1s": {12, "mnist-7f3a: workers>=2 was not reached within 1.0s: 1 worker trains"},
			"wait mnist --for workers<=1":              {0, ""},
			"wait mnist --for loss<=0.32":              {0, ""},
			"wait mnist --for loss<=3e-1 --timeout 1s": {12, "mnist-7f3a: loss<=3e-1 was not reached within 1.0s: its loss is 0.3125"},
			"wait mnist --for lsos<=1 --timeout 1s":    {12, "lr, and no lsos so far"},
			"wait done-0001 --for step>=400":           {0, ""},
			"wait done-0001 --for loss<=0.25":          {0, ""},
			"wait done-0001 --for step>=401":           {4, "done-0001 has succeeded, and step>=401 was not reached: its step is 400"},
			"wait bert --for step>=100000":             {14, ""},
			"wait mnist --for step":                    {2, "write it in quotes, --for 'step>=4'"},
			"wait mnist --for stepp":                   {2, "write running or finishing, 'step>=N', 'workers>=N', or a value that the program reports, as 'loss<=0.1'"},
			"wait mnist --for step>=many":              {2, `"many" is no number of steps`},
			"wait mnist --for workers>=1.5":            {2, `"1.5" is no number of workers`},
			"wait mnist --for loss<=nan":               {2, `"nan" is no number`},
			"wait mnist --for stopping":                {2, "write running or finishing"},
			"wait nobody-is-asked --for step>=x":       {2, "no number of steps"},
		} {
			if o := run(t, w, strings.Fields(line)...); o.Exit != want.exit || !strings.Contains(o.Err, want.message) || want.exit == 0 && o.Err != "" {
				t.Errorf("%s: %+v, want exit %d and %q", line, o, want.exit, want.message)
			}
		}
	})
}
