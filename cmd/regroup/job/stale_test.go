package job

import (
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/commandtest"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/cluster"
	"github.com/regroup-io/regroup/services/cluster/clustertest"
)

// TestTheStateOfTheDead: the broker, or its store, still has the state of jobs whose services have
// died. Commands that show it say in a line how old it is, and only where that matters.
func TestTheStateOfTheDead(t *testing.T) {
	stored := func() commandtest.World {
		w := commandtest.New(t)
		w.Job(events.JobView{Job: "c1-3638", State: events.JobStateRunning, By: "/client/ada", Submitted: clustertest.Now.Add(-time.Minute), Generation: 1, Step: 250, StepAt: clustertest.Now.Add(-9 * time.Second)})
		w.Job(events.JobView{Job: "c0-0001", State: events.JobStateSucceeded, By: "/client/ada", Submitted: clustertest.Now.Add(-time.Hour), Ended: clustertest.Now.Add(-50 * time.Minute)})
		return w
	}
	const line = "regroup: no service answers: state as they left it\n" // no fact says when
	for name, c := range map[string]struct {
		services []string
		command  string
		message  string
	}{
		"list":            {nil, "ls", line},
		"list for others": {nil, "ls -o json", line},
		"job":             {nil, "status c1-3638", line},
		"output":          {nil, "logs c1-3638", line},
		"ended":           {nil, "status c0-0001", ""},
		"some":            {[]string{events.ServiceDiscovery}, "ls", "regroup: no scheduler, no rendezvous, no registry answers: state as they left it\n"},
		"the registry":    {[]string{events.ServiceRegistry}, "ls", ""},
		"all":             {events.ServiceNames(), "status c1-3638", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := stored()
			w.Answering(events.ProgressAnswer{}, c.services...)
			if o := run(t, w, strings.Fields(c.command)...); o.Exit != 0 || o.Err != c.message {
				t.Errorf("%+v, want %q", o, c.message)
			}
		})
	}
	w := stored()
	w.Publish(events.Event{Entity: "c1-3638", Body: events.JobFinishing{Job: "c1-3638"}, Time: clustertest.Now.Add(-2 * time.Second)})
	fact, err := w.Ports.Log.Last(t.Context(), events.StreamFacts, events.AllFacts)
	if err != nil {
		t.Fatal(err)
	}
	if o := run(t, w, "ls"); !strings.Contains(o.Err, "state as of "+fact.Time.UTC().Format(time.DateTime)) {
		t.Errorf("after a fact that was stored at %s: %q", fact.Time, o.Err)
	}
	// What others store later says nothing about the age of what the registry has.
	w.Publish(events.Event{Entity: "c1-3638", Body: events.WorkerDone{WorkerRef: tables.WorkerRef{Job: "c1-3638"}}})
	c := cluster.New(w.Ports, "/regroup/cli/test")
	c.AnswerWithin = 100 * time.Millisecond
	if stale := c.StaleJobs(t.Context(), events.JobView{Job: "c1-3638", State: events.JobStateRunning}); len(stale) != 1 || !stale[0].AsOf.Equal(fact.Time) {
		t.Errorf("after a later fact of an agent: %v, want %s", stale, fact.Time)
	}
	if o := run(t, w, "rm", "nosuch"); strings.Contains(o.Err, "state as of") {
		t.Errorf("of no job: %q", o.Err)
	}
}

// TestNothingCanEnd: a wait for the end of a job whose server has ended is an error, not an end.
func TestNothingCanEnd(t *testing.T) {
	w := commandtest.New(t)
	w.Job(running())
	c := cluster.Of("/regroup/cli/test", cluster.Server{Ports: w.Ports, Idle: true})
	err := c.AwaitEnd(t.Context(), mnist)
	if errcode.Of(err) != errcode.Unavailable {
		t.Errorf("it has ended: %v", err)
	}
	v, err := c.Job(t.Context(), string(mnist))
	if err != nil {
		t.Fatal(err)
	}
	stale := c.StaleJobs(t.Context(), v)
	if len(stale) != 1 || !strings.HasPrefix((command.Env{Now: func() time.Time { return clustertest.Now }}).StaleText(stale[0]), "no service answers: state as they left it; their process has ended, and regroup up goes on") {
		t.Errorf("stale: %v", stale)
	}
}
