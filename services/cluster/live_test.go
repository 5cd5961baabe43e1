package cluster_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/cluster"
	"github.com/regroup-io/regroup/services/cluster/clustertest"
)

// TestLiveAsksTheServerOfEachJob checks that each registry knows its own jobs, that a job without a
// server keeps its stored state, and that a job that ended with its run has no running workers.
func TestLiveAsksTheServerOfEachJob(t *testing.T) {
	one, two, dead := clustertest.New(t), clustertest.New(t), clustertest.New(t)
	put := func(w *clustertest.World, id ident.JobID, state events.JobState) {
		w.Job(events.JobView{
			Job: id, State: state, By: cluster.RunSource, Submitted: clustertest.Now, Generation: 2, Step: 10,
			Reported: map[string]events.Metric{"lr": {Value: 0.5, Step: 9}},
			Workers:  tables.WorkerTable{{Rank: 0, State: tables.WorkerStateReady}, {WorkerRef: tables.WorkerRef{Place: ident.Place{Slot: 1}}, State: tables.WorkerStateFailed}},
		})
	}
	put(one, "a-0001", events.JobStateRunning)
	put(one, "b-0002", events.JobStateRunning)
	put(two, "c-0003", events.JobStateRunning)
	put(two, "d-0004", events.JobStateFailed)
	put(dead, "e-0005", events.JobStateRunning)
	at := clustertest.Now.Add(-time.Second)
	progress := func(g ident.Generation, step uint64) events.JobProgress {
		return events.JobProgress{Generation: g, Step: step, At: at, Reported: map[string]events.Metric{"loss": {Value: 0.25, Step: step}}}
	}
	one.Answering(events.ProgressAnswer{Jobs: map[ident.JobID]events.JobProgress{"a-0001": progress(2, 30), "b-0002": progress(1, 99)}}, events.ServiceRegistry)
	two.Answering(events.ProgressAnswer{Jobs: map[ident.JobID]events.JobProgress{"c-0003": progress(2, 40), "d-0004": progress(2, 50)}}, events.ServiceRegistry)
	c := cluster.Of("/regroup/cli/test", cluster.Server{Ports: dead.Ports, Idle: true}, cluster.Server{Ports: one.Ports}, cluster.Server{Ports: two.Ports})
	all, err := c.Jobs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var views []*events.JobView
	for i := range all {
		views = append(views, &all[i])
	}
	if !c.Live(t.Context(), views...) {
		t.Error("two registries have answered, and none is said to have")
	}
	got := ""
	for _, v := range all {
		got += fmt.Sprintf("%s %s step %d loss %g lr %g %s\n", v.Job, v.State, v.Step, v.Reported["loss"].Value, v.Reported["lr"].Value, v.Workers[0].State)
	}
	const want = `a-0001 running step 30 loss 0.25 lr 0.5 ready
b-0002 running step 10 loss 0 lr 0.5 ready
c-0003 running step 40 loss 0.25 lr 0.5 ready
d-0004 failed step 10 loss 0 lr 0.5 ready
e-0005 stopped step 10 loss 0 lr 0.5 stopped
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	silent := clustertest.New(t)
	silent.Job(events.JobView{Job: "f-0006", State: events.JobStateRunning, Submitted: clustertest.Now, Generation: 2, Step: 1275})
	d := cluster.Of("/regroup/cli/test", cluster.Server{Ports: silent.Ports})
	if v, err := d.Job(t.Context(), "f-0006"); err != nil || d.Live(t.Context(), &v) || v.Step != 1275 {
		t.Errorf("no registry answers: step %d, %v", v.Step, err)
	}
	if _, err := c.Job(t.Context(), "c-0003"); err != nil {
		t.Fatal(err)
	}
	others := slices.DeleteFunc(events.ServiceNames(), func(s string) bool { return s == events.ServiceRegistry })
	if got := c.Silent(t.Context()); !slices.Equal(got, others) {
		t.Errorf("silent: %v, want %v", got, others)
	}
}
