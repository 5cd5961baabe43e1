package registry_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/controller/controllertest"
)

// alike returns the ids of n events of one source whose jobs of one name have equal short ids.
func alike(name string, n int) []string {
	by := map[ident.JobID][]string{}
	for i := 0; ; i++ {
		id := fmt.Sprint("event-", i)
		job := ident.JobIDFrom(name, "/client", id)
		if by[job] = append(by[job], id); len(by[job]) == n {
			return by[job]
		}
	}
}

// jobsByOrigin returns the jobs in the bucket.
func jobsByOrigin(t *testing.T, p broker.Ports) map[string]ident.JobID {
	t.Helper()
	out := map[string]ident.JobID{}
	all, err := document.All[events.JobView](t.Context(), p.Buckets.Bucket(events.BucketJobs))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if old := out[r.View.Origin]; old != "" {
			t.Errorf("one event has submitted %s and %s", old, r.View.Job)
		}
		out[r.View.Origin] = r.View.Job
	}
	return out
}

// TestEventsWithEqualShortIDs submits jobs by events whose short ids are equal, also at the same
// time on two replicas: each is a job of its own, and a repeat of an event is the same job.
func TestEventsWithEqualShortIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stopA, stopB := start(t, bus.Client().Ports()), start(t, bus.Client().Ports())
		synctest.Wait()
		ids := alike("demo", 3)
		for range 2 {
			for _, id := range ids {
				controllertest.PublishEvent(t, p, events.Event{ID: id, Source: "/client", Entity: "demo", Body: events.JobSubmit{Spec: spec.Job{
					Name: "demo", Command: []string{id}, Workers: spec.Workers{Min: 1, Max: 2},
				}}})
			}
			time.Sleep(5 * time.Minute) // the broker has forgotten the message ids
		}
		jobs := jobsByOrigin(t, p)
		lengths := map[int]int{}
		for _, id := range ids {
			job := jobs[ident.Origin("/client", id)]
			if job == "" {
				t.Fatalf("the job of %s has vanished; there are %v", id, jobs)
			}
			if v := view(t, p, job); v.Spec.Command[0] != id {
				t.Errorf("%s runs the command of %s", job, v.Spec.Command[0])
			}
			lengths[len(job)]++
		}
		if len(jobs) != len(ids) || lengths[len("demo-xxxx")] != 1 || lengths[len("demo-xxxxxxxx")] != 2 {
			t.Errorf("jobs %v: want one with four digits and two with eight", jobs)
		}
		stopA()
		stopB()
	})
}

// TestManyJobsOfOneName: among 300 jobs of one name two equal short ids are more likely than not.
func TestManyJobsOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stop := start(t, bus.Client().Ports())
		synctest.Wait()
		const submitted = 1000
		for i := range submitted {
			controllertest.PublishEvent(t, p, events.Event{ID: fmt.Sprint("event-", i), Source: "/client", Entity: "demo", Body: events.JobSubmit{Spec: spec.Job{
				Name: "demo", Command: []string{"x"}, Workers: spec.Workers{Min: 1, Max: 1},
			}}})
		}
		time.Sleep(time.Minute)
		if jobs := jobsByOrigin(t, p); len(jobs) != submitted {
			t.Errorf("%d of %d jobs were accepted", len(jobs), submitted)
		}
		stop()
	})
}

// TestExpiredSubmitMakesNoJob: the refusal says when the command expired; the same event, published
// again in time, submits the job.
func TestExpiredSubmitMakesNoJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		give := func() (expires time.Time) {
			expires = time.Now().Add(15 * time.Second)
			controllertest.PublishEvent(t, p, events.Event{ID: "s1", Source: "/client", Expires: expires, Body: events.JobSubmit{Spec: spec.Job{
				Name: "demo", Command: []string{"x"}, Workers: spec.Workers{Min: 1, Max: 2},
			}}})
			return expires
		}
		expires := give()
		time.Sleep(5 * time.Minute)
		stop := start(t, p)
		time.Sleep(time.Minute)
		if jobs := jobsByOrigin(t, p); len(jobs) != 0 {
			t.Errorf("jobs %v, want none", jobs)
		}
		last, err := p.Log.Last(t.Context(), events.StreamFacts, events.FactSubject("dev.regroup.job.rejected.v1", "*"))
		if err != nil {
			t.Fatal(err)
		}
		e, err := cloudevent.Decode(last.Header, last.Data)
		if r, ok := e.Body.(events.JobRejected); err != nil || !ok || r.Command != "s1" || !r.Expired.Equal(expires) || r.Code != errcode.Unavailable {
			t.Errorf("published %+v, %v", e.Body, err)
		}
		give()
		time.Sleep(time.Minute)
		if jobs := jobsByOrigin(t, p); len(jobs) != 1 {
			t.Errorf("jobs %v, want the one that was given again", jobs)
		}
		stop()
	})
}
