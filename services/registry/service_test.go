package registry_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/controller/controllertest"
	"github.com/regroup-io/regroup/services/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a replica inside a synctest bubble.
func start(t *testing.T, p broker.Ports) (stop func()) {
	t.Helper()
	s, err := registry.New(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return controllertest.Start(t, s.Run)
}

// say publishes a fact or a command and waits until it is applied.
func say(t *testing.T, p broker.Ports, e events.Event) {
	t.Helper()
	controllertest.PublishEvent(t, p, e)
	synctest.Wait()
}

func fact(t *testing.T, p broker.Ports, id, entity string, number uint64, b events.Body) {
	t.Helper()
	say(t, p, events.Event{ID: id, Source: "/regroup/test", Entity: entity, Number: number, Body: b})
}

// published lists the registry's facts.
func published(t *testing.T, p broker.Ports) string {
	t.Helper()
	return controllertest.Facts(t, p, func(e events.Event) string { return string(e.Body.Type().Family()) + "." + e.Body.Type().Kind() },
		events.FamilySubject(events.FamilyJob, "*"), events.FamilySubject(events.FamilyIncident, "*"))
}

func wantPublished(t *testing.T, p broker.Ports, want string) {
	t.Helper()
	if got := published(t, p); got != want {
		t.Errorf("published %q\nwant %q", got, want)
	}
}

func view(t *testing.T, p broker.Ports, id ident.JobID) events.JobView {
	t.Helper()
	return controllertest.View[events.JobView](t, p, events.BucketJobs, string(id))
}

var two = []ident.Place{{Node: "a"}, {Node: "b"}}

func submit(t *testing.T, p broker.Ports, id string, command ...string) ident.JobID {
	t.Helper()
	say(t, p, events.Event{ID: id, Source: "/client", Entity: "demo", Body: events.JobSubmit{Spec: spec.Job{
		Name:    "demo",
		Command: command, Workers: spec.Workers{Min: 1, Max: 2}, Recovery: spec.RecoveryInProcess,
	}}})
	return ident.JobIDFrom("demo", "/client", id)
}

func ref(id ident.JobID, at ident.Place, inc string) tables.WorkerRef {
	return tables.WorkerRef{Job: id, Place: at, Incarnation: ident.Incarnation(inc), Agent: "A1", Attempt: 1, Generation: 1}
}

func sealed(id ident.JobID) events.RoundSealed {
	return events.RoundSealed{Job: id, Generation: 1, Cause: events.Cause{Kind: events.CauseStart, Rank: -1}, Members: []tables.Member{
		{Place: two[0], Incarnation: "w1", Attempt: 1, Rank: 0}, {Place: two[1], Incarnation: "w2", Attempt: 1, Rank: 1},
	}}
}

func TestJobFromSubmitToSuccessUnderTwoReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stopA, stopB := start(t, bus.Client().Ports()), start(t, bus.Client().Ports())
		synctest.Wait()
		id := submit(t, p, "s1", "python", "train.py")
		if again := submit(t, p, "s1", "python", "train.py"); again != id {
			t.Fatalf("the same event named %s and %s", id, again)
		}
		fact(t, p, "p1", string(id), 1, events.PlacementSet{Job: id, Places: two})
		fact(t, p, "r1", string(id), 1, sealed(id))
		fact(t, p, "w1", string(id), 0, events.WorkerReady{WorkerRef: ref(id, two[0], "w1"), Step: 1})
		fact(t, p, "w2", string(id), 0, events.WorkerExited{WorkerRef: ref(id, two[1], "w2"), ExitCode: 1, Detail: "exit code 1"})
		fact(t, p, "n1", "b", 7, events.NodeLost{NodeFact: events.NodeFact{Node: "b", Incarnation: "A1", Reason: "silent"}})
		fact(t, p, "d1", string(id), 0, events.WorkerDone{WorkerRef: ref(id, two[0], "w1"), Step: 9})
		fact(t, p, "w3", string(id), 0, events.WorkerExited{WorkerRef: ref(id, two[0], "w1"), Done: true, Detail: "exit code 0"})
		wantPublished(t, p, "job.submitted, incident.opened, job.failure-counted, job.respawned, job.respawn-denied, job.finishing, job.progressed, incident.closed, job.succeeded")
		if v := view(t, p, id); v.State != events.JobStateSucceeded || v.By != "/client" {
			t.Errorf("view: %+v", v)
		}
		stopA()
		stopB()
	})
}

// TestRefusedCommandsOfASubmitterLeaveNoTrace in the job that they are about, be it another's or
// none.
func TestRefusedCommandsOfASubmitterLeaveNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stop := start(t, bus.Client().Ports())
		synctest.Wait()
		id := submit(t, p, "s1", "python", "train.py")
		before, _, err := p.Buckets.Bucket(events.BucketJobs).Load(t.Context(), string(id))
		if err != nil {
			t.Fatal(err)
		}
		eve := events.Submitter{Name: "eve"}.Source()
		for n, job := range []ident.JobID{id, "nobody-1"} {
			say(t, p, events.Event{ID: fmt.Sprint("stop-", n), Source: eve, Body: events.JobStop{Job: job}})
		}
		wantPublished(t, p, "job.submitted, job.rejected, job.rejected")
		published := controllertest.Facts(t, p, func(e events.Event) string {
			return fmt.Sprintf("%s %s %v", e.Entity, e.Body.(events.JobRejected).Command, e.Body.(events.JobRejected).Errors)
		}, events.FactSubject(events.JobRejected{}.Type(), "*"))
		if want := "unknown stop-0 [job: " + string(id) + " was submitted by /client: a submitter may change its own jobs only], unknown stop-1 [job: there is no job nobody-1]"; published != want {
			t.Errorf("told %s, want %s", published, want)
		}
		if after, _, err := p.Buckets.Bucket(events.BucketJobs).Load(t.Context(), string(id)); err != nil || !bytes.Equal(after, before) {
			t.Errorf("the job's document is another one: %v", err)
		}
		if _, _, err := p.Buckets.Bucket(events.BucketJobs).Load(t.Context(), "nobody-1"); errcode.Of(err) != errcode.NotFound {
			t.Errorf("the unknown job has a document: %v", err)
		}
		stop()
	})
}

func TestRefusedCommandGivesEveryReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stop := start(t, p)
		synctest.Wait()
		submit(t, p, "s1") // without a command
		say(t, p, events.Event{ID: "c2", Source: "/client", Entity: "nosuch-0001", Body: events.JobScale{Job: "nosuch-0001", Workers: spec.Workers{Min: 1, Max: 2}}})
		say(t, p, events.Event{ID: "c3", Source: "/client", Entity: "nosuch-0002", Body: events.JobStop{Job: "nosuch-0002"}})
		wantPublished(t, p, "job.rejected, job.rejected")
		time.Sleep(time.Minute) // the stop's submit did not arrive
		synctest.Wait()
		wantPublished(t, p, "job.rejected, job.rejected, job.rejected")
		// Nothing is stored for jobs that never existed.
		for _, id := range []string{string(ident.JobIDFrom("demo", "/client", "s1")), "nosuch-0001", "nosuch-0002"} {
			if _, _, err := p.Buckets.Bucket(events.BucketJobs).Load(t.Context(), id); !errors.Is(err, errcode.ErrNotFound) {
				t.Errorf("%s left a document: %v", id, err)
			}
		}
		// A command that cannot be decoded is answered too.
		controllertest.Publish(t, p, broker.Message{Subject: "regroup.cmd.job.submit", ID: "junk", Data: []byte("{")})
		synctest.Wait()
		wantPublished(t, p, "job.rejected, job.rejected, job.rejected, job.rejected")
		stop()
	})
}

func TestMissedFactsAreReadFromOtherServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stop := start(t, p)
		synctest.Wait()
		id := submit(t, p, "s1", "x")
		// The facts of these views never arrive.
		controllertest.Record(t, p, events.BucketPlacements, events.PoolKey, 0, events.PoolView{Jobs: map[ident.JobID]events.PlacementView{id: {Places: two}}})
		controllertest.Record(t, p, events.BucketRounds, string(id), 0, events.RoundView{Job: id, State: events.RoundStateSealed, Generation: 1, Members: sealed(id).Members})
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if v := view(t, p, id); v.State != events.JobStateRunning || v.Generation != 1 || len(v.Workers) != 2 {
			t.Fatalf("a missed seal: %s %s %v", v.State, v.Generation, v.Workers)
		}
		fact(t, p, "w1", string(id), 0, events.WorkerReady{WorkerRef: ref(id, two[0], "w1"), Step: 1})
		controllertest.Record(t, p, events.BucketNodes, "b", 0, events.NodeView{Node: "b", Incarnation: "A1", State: events.NodeStateLost, Reason: "silent"})
		time.Sleep(11 * time.Second)
		synctest.Wait()
		wantPublished(t, p, "job.submitted, job.progressed, incident.opened, job.failure-counted, job.respawn-denied")
		before := view(t, p, id)
		time.Sleep(time.Minute)
		synctest.Wait()
		wantPublished(t, p, "job.submitted, job.progressed, incident.opened, job.failure-counted, job.respawn-denied")
		if v := view(t, p, id); len(v.Failures) != 1 || len(before.Failures) != 1 {
			t.Errorf("a lost node was counted again with each look: %v", v.Failures)
		}
		stop()
	})
}
