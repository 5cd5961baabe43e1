package plan_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

// records are those that a forecast reads, beside the pool that they are of.
type records struct {
	pool  plan.State
	nodes []events.NodeView
	jobs  []events.JobView
	facts uint64
}

func (r *records) step(b events.Body) {
	r.facts++
	r.pool, _ = plan.Machine{}.Step(r.pool, events.Input{Number: r.facts, Body: b}, noon)
}

func (r *records) join(v events.NodeView) {
	v.State, v.Incarnation = events.NodeStateReady, "A"
	r.nodes = append(r.nodes, v)
	r.step(events.NodeJoined{NodeFact: v.Fact()})
}

// change has a node drain, or go away as lost.
func (r *records) change(i int, state events.NodeState, draining bool) {
	r.nodes[i].State, r.nodes[i].Draining = state, draining
	r.step(plan.NodeInput(r.nodes[i], 0).Body)
}

func (r *records) submit(job spec.Job) {
	v := events.JobView{Job: ident.JobID(job.Name), Spec: job, State: events.JobStateRunning, Submitted: noon.Add(time.Duration(len(r.jobs)) * time.Second)}
	r.jobs = append(r.jobs, v)
	r.step(events.JobSubmitted{Job: v.Job, Spec: job})
}

func (r *records) end(i int) {
	r.step(events.JobStopped{JobEnd: events.JobEnd{Job: r.jobs[i].Job}})
	r.jobs[i].State = events.JobStateStopped
}

func (r *records) predict(job spec.Job) plan.Forecast {
	view := r.pool.View // a forecast must not change it
	f, _ := plan.Predict(func() plan.State { return plan.Seen(r.nodes, r.jobs, view) }, ident.JobID(job.Name), job, noon)
	return f
}

func job(name string, least, most int) spec.Job {
	return spec.Job{Name: name, Workers: spec.Workers{Min: least, Max: most}}.WithDefaults()
}

// TestForecast of a pool with eight slots, of which two jobs have three each.
func TestForecast(t *testing.T) {
	r := &records{pool: plan.Machine{}.New("")}
	r.join(events.NodeView{Node: "node-a", Slots: 4})
	r.join(events.NodeView{Node: "node-b", Slots: 4})
	r.submit(job("a", 3, 3))
	r.submit(job("b", 3, 3))
	r.submit(job("gone", 1, 1))
	r.end(2)
	for name, c := range map[string]struct {
		job  spec.Job
		want plan.Forecast
	}{
		"it starts":            {job("new", 2, 2), plan.Forecast{Places: ident.Places{{Node: "node-b", Slot: 2}, {Node: "node-b", Slot: 3}}}},
		"with fewer":           {job("new", 1, 4), plan.Forecast{Places: ident.Places{{Node: "node-b", Slot: 2}, {Node: "node-b", Slot: 3}}, Waiting: "has 2 of up to 4 workers: 0 free of 8 on 2 nodes"}},
		"one of two must end":  {job("new", 4, 4), plan.Forecast{Waiting: "needs 4 slots, 2 free of 8 on 2 nodes", Ends: []ident.JobID{"a", "b"}}},
		"both must end":        {job("new", 7, 8), plan.Forecast{Waiting: "needs 7 slots, 2 free of 8 on 2 nodes", Ended: 2}},
		"there are not enough": {job("new", 9, 9), plan.Forecast{Waiting: "needs 9 slots, more than there are: 2 free of 8 on 2 nodes"}},
	} {
		c.want.Workers = c.job.Workers
		if got := r.predict(c.job); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v\nwant %+v", name, got, c.want)
		}
	}
	r.submit(job("first", 5, 5))
	if got := r.predict(job("new", 4, 4)); got.Ahead != 1 || len(got.Ends) != 0 || got.Ended != 3 {
		t.Errorf("behind one that gets five of eight first: %+v", got)
	}
}

// TestAForecastComesTrue: whatever the pool is, a job that is submitted after a forecast gets the
// places and the reason that were forecast, and when one of the jobs ends that were named, or as
// many as were said, it starts.
func TestAForecastComesTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := func() *records { return &records{pool: plan.Machine{}.New("")} }
		var steps []func(*records)
		nodes := rapid.IntRange(1, 4).Draw(t, "nodes")
		for i := range nodes {
			v := events.NodeView{Node: ident.NodeID(fmt.Sprint("node-", i)), Slots: rapid.IntRange(1, 4).Draw(t, "slots")}
			if rapid.Bool().Draw(t, "gpus") {
				for range v.Slots {
					v.GPUs = append(v.GPUs, devices.GPU{Model: rapid.SampledFrom([]string{"H100", "T4"}).Draw(t, "model")})
				}
			}
			steps = append(steps, func(r *records) { r.join(v) })
		}
		draw := func(name string) spec.Job {
			least := rapid.IntRange(1, 6).Draw(t, "min")
			j := spec.Job{Name: name, Workers: spec.Workers{Min: least, Max: least + rapid.IntRange(0, 4).Draw(t, "more")}}
			j.Recovery = rapid.SampledFrom([]spec.Recovery{spec.RecoveryRestart, spec.RecoveryInProcess}).Draw(t, "recovery")
			if model := rapid.SampledFrom([]string{"", "", "H100", "any"}).Draw(t, "asks for"); model != "" {
				j.GPU = &spec.GPU{Model: model}
			}
			return j.WithDefaults()
		}
		count := rapid.IntRange(0, 5).Draw(t, "jobs")
		for i := range count {
			j := draw(fmt.Sprint("job-", i))
			steps = append(steps, func(r *records) { r.submit(j) })
		}
		if count > 0 && rapid.Bool().Draw(t, "one ends") {
			i := rapid.IntRange(0, count-1).Draw(t, "which")
			steps = append(steps, func(r *records) { r.end(i) })
		}
		if rapid.Bool().Draw(t, "a node changes") {
			i := rapid.IntRange(0, nodes-1).Draw(t, "which node")
			state := rapid.SampledFrom([]events.NodeState{events.NodeStateReady, events.NodeStateSuspected, events.NodeStateLost}).Draw(t, "state")
			drains := rapid.Bool().Draw(t, "drains")
			steps = append(steps, func(r *records) { r.change(i, state, drains) })
		}
		now := func() *records {
			r := history()
			for _, step := range steps {
				step(r)
			}
			return r
		}
		late := draw("late")
		f := now().predict(late)
		has := func(r *records) events.PlacementView { return r.pool.View.Jobs["late"] }
		r := now()
		r.submit(late)
		if got := has(r); !reflect.DeepEqual(got.Places, f.Places) || got.Waiting != f.Waiting {
			t.Fatalf("it gets %v and %q, and %+v was forecast", got.Places, got.Waiting, f)
		}
		named := map[ident.JobID]bool{}
		for _, id := range f.Ends {
			named[id] = true
		}
		for i := range count {
			r := now()
			if len(f.Places) > 0 || len(r.pool.View.Jobs[r.jobs[i].Job].Places) == 0 {
				continue
			}
			r.end(i)
			r.submit(late)
			if started := len(has(r).Places) > 0; started != named[r.jobs[i].Job] {
				t.Fatalf("when %s has ended it starts: %t, and %+v was forecast", r.jobs[i].Job, started, f)
			}
		}
		ended := 0
		for len(has(r).Places) == 0 {
			i := 0
			for i < len(r.jobs) && len(r.pool.View.Jobs[r.jobs[i].Job].Places) == 0 {
				i++
			}
			if i == len(r.jobs) {
				break
			}
			r.end(i)
			ended++
		}
		if len(has(r).Places) == 0 {
			ended = 0
		}
		if len(f.Ends) == 0 && ended != f.Ended {
			t.Fatalf("it starts when %d have ended, and %+v was forecast", ended, f)
		}
	})
}
