package registry_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/controller/controllertest"
	"github.com/regroup-io/regroup/services/registry/job"
)

// refusals lists the refused commands.
func refusals(t *testing.T, p broker.Ports) string {
	t.Helper()
	return controllertest.Facts(t, p, func(e events.Event) string {
		if r, ok := e.Body.(events.JobRejected); ok {
			return r.Command + ": " + r.Errors[0].Message
		}
		return ""
	}, events.FactSubject(events.JobRejected{}.Type(), "*"))
}

// TestRemovedJobIsNotSubmittedAgain, neither by a repeat of its event nor by one with an equal
// short id, under two replicas.
func TestRemovedJobIsNotSubmittedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stopA, stopB := start(t, bus.Client().Ports()), start(t, bus.Client().Ports())
		synctest.Wait()
		ids := alike("demo", 2)
		id := submit(t, p, ids[0], "x")
		command := func(event string, b events.Body) {
			say(t, p, events.Event{ID: event, Source: "/client", Entity: string(id), Body: b})
		}
		command("too-early", events.JobRemove{Job: id})
		command("stop", events.JobStop{Job: id})
		for range 3 { // at-least-once delivery
			command("remove", events.JobRemove{Job: id})
			time.Sleep(5 * time.Minute) // the broker has forgotten the message id
		}
		if v := view(t, p, id); v.State != "" || len(v.Spec.Command) > 0 {
			t.Errorf("what is left of it: %+v", v)
		}
		for range 2 {
			submit(t, p, ids[0], "x")
			time.Sleep(5 * time.Minute)
		}
		command("scale", events.JobScale{Job: id, Workers: spec.Workers{Min: 1, Max: 1}})
		command("stop-again", events.JobStop{Job: id})
		command("remove-again", events.JobRemove{Job: id})
		wantPublished(t, p, "job.submitted, job.rejected, job.stopped, job.removed, job.rejected, job.rejected, job.rejected, job.rejected")
		want := "too-early: " + string(id) + " is waiting: stop it first, " +
			ids[0] + ": " + string(id) + " was submitted by this event before, and removed: submit it by another, " +
			"scale: there is no job " + string(id) + ", stop-again: there is no job " + string(id) + ", remove-again: there is no job " + string(id)
		if got := refusals(t, p); got != want {
			t.Errorf("refused %s\nwant %s", got, want)
		}
		submit(t, p, ids[1], "another")
		jobs := jobsByOrigin(t, p)
		if other := jobs[ident.Origin("/client", ids[1])]; other == id || view(t, p, other).Spec.Command[0] != "another" {
			t.Errorf("the job of another event is %q", other)
		}
		stopA()
		stopB()
	})
}

// TestRemovedJobLeavesNothing once nothing is stored any more that could be mistaken for it.
func TestRemovedJobLeavesNothing(t *testing.T) {
	p := memory.New().Ports()
	n := 0
	tr, err := controller.NewProcessor(controller.Options[job.State]{
		Service: events.ServiceRegistry, Machine: job.Machine{}, Bucket: events.BucketJobs, Ports: p,
		NewID: func() string { n++; return fmt.Sprint(n) },
	})
	if err != nil {
		t.Fatal(err)
	}
	const id = "demo-0001"
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	process := func(event string, b events.Body) {
		t.Helper()
		if _, err := tr.Process(t.Context(), id, []events.Input{{ID: event, Source: "/client", Body: b}}, now); err != nil {
			t.Fatal(err)
		}
	}
	stored := func() []byte {
		t.Helper()
		b, _, err := p.Buckets.Bucket(events.BucketJobs).Load(t.Context(), id)
		if err != nil && errcode.Of(err) != errcode.NotFound {
			t.Fatal(err)
		}
		return b
	}
	submit := events.JobSubmit{Spec: spec.Job{Name: "demo", Command: []string{"x"}, Workers: spec.Workers{Min: 1, Max: 1}}}
	process("s1", submit)
	for i := range 300 { // more inputs than a record keeps
		process(fmt.Sprint("scale-", i), events.JobScale{Job: id, Workers: spec.Workers{Min: 1, Max: 1 + i%2}})
	}
	process("stop", events.JobStop{Job: id})
	process("remove", events.JobRemove{Job: id})
	if b := stored(); len(b) > 1500 {
		t.Errorf("%d bytes are left:\n%.500s", len(b), b)
	}
	for _, days := range []int{0, 29} {
		now = now.Add(time.Duration(days) * 24 * time.Hour)
		process("s1", submit)
		if b := stored(); b == nil || tr.Deadline(id).Before(now) {
			t.Errorf("after %d days it is due at %v:\n%s", days, tr.Deadline(id), b)
		}
	}
	now = tr.Deadline(id)
	process("", events.Tick{})
	if b := stored(); b != nil {
		t.Errorf("in the end there is\n%s", b)
	}
	process("s1", submit)
	if v := view(t, p, id); v.State != events.JobStateWaiting {
		t.Errorf("a month later: %+v", v)
	}
}
