package registry_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/controller/controllertest"
)

// running submits a job with a hang limit and brings it to its first good step.
func running(t *testing.T, p broker.Ports) ident.JobID {
	t.Helper()
	say(t, p, events.Event{ID: "s1", Source: "/client", Entity: "demo", Body: events.JobSubmit{Spec: spec.Job{
		Name: "demo", Command: []string{"x"}, Workers: spec.Workers{Min: 1, Max: 2}, Recovery: spec.RecoveryInProcess,
		Health: spec.Health{Hang: spec.Duration(20 * time.Second)},
	}}})
	id := ident.JobIDFrom("demo", "/client", "s1")
	fact(t, p, "p1", string(id), 1, events.PlacementSet{Job: id, Places: two})
	fact(t, p, "r1", string(id), 1, sealed(id))
	fact(t, p, "w1", string(id), 0, events.WorkerReady{WorkerRef: ref(id, two[0], "w1"), Step: 1})
	return id
}

// steps publishes n steps of rank 0, one a second.
func steps(t *testing.T, p broker.Ports, id ident.JobID, from uint64, n int) {
	t.Helper()
	for i := range uint64(n) {
		data, err := bodies.Encode(events.Progress{Job: id, Place: two[0], Generation: 1, Step: from + i})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Signals.Send(events.ProgressSubject(id), data); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
}

func stalls(t *testing.T, p broker.Ports) int {
	t.Helper()
	return strings.Count(published(t, p), "job.stalled")
}

func TestJobWithoutStepsStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stopA, stopB := start(t, bus.Client().Ports()), start(t, bus.Client().Ports())
		synctest.Wait()
		id := running(t, p)
		steps(t, p, id, 2, 60)
		if n := stalls(t, p); n != 0 {
			t.Fatalf("a job that makes steps stood still %d times", n)
		}
		v := view(t, p, id)
		if v.Step < 50 || v.Step > 61 {
			t.Errorf("the record says step %d after 61, one a second", v.Step)
		}
		time.Sleep(18 * time.Second)
		if n := stalls(t, p); n != 0 {
			t.Errorf("it stood still before its limit")
		}
		time.Sleep(5 * time.Minute)
		if n := stalls(t, p); n != 1 {
			t.Errorf("published %d stalls, want once: %s", n, published(t, p))
		}
		stopA()
		stopB()
	})
}

// TestThousandStepsAreStoredAFewTimes: only the newest step is stored, at most every few seconds,
// however fast they arrive.
func TestThousandStepsAreStoredAFewTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stopA, stopB := start(t, bus.Client().Ports()), start(t, bus.Client().Ports())
		synctest.Wait()
		id := running(t, p)
		_, before, err := p.Buckets.Bucket(events.BucketJobs).Load(t.Context(), string(id))
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint64(1000) {
			data, _ := bodies.Encode(events.Progress{Job: id, Place: two[0], Generation: 1, Step: 2 + i})
			if err := p.Signals.Send(events.ProgressSubject(id), data); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		_, after, err := p.Buckets.Bucket(events.BucketJobs).Load(t.Context(), string(id))
		if err != nil || after-before > 5 || after == before {
			t.Errorf("1000 steps in 20 s were stored %d times (%v), want 1 to 5", after-before, err)
		}
		stopA()
		stopB()
	})
}

// TestDisconnectedReplicaReportsNoStall: the replica, not the job, is disconnected or paused; and a
// replica that starts has no past.
func TestDisconnectedReplicaReportsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		deaf := bus.Client()
		stop := start(t, deaf.Ports())
		synctest.Wait()
		id := running(t, p)
		for i := range uint64(5) {
			deaf.Disconnect()
			steps(t, p, id, 10+100*i, 60)
			deaf.Connect()
			time.Sleep(19 * time.Second)
			steps(t, p, id, 80+100*i, 2)
		}
		stop()
		steps(t, p, id, 1000, 60)
		stop = start(t, bus.Client().Ports())
		time.Sleep(19 * time.Second)
		if n := stalls(t, p); n != 0 {
			t.Errorf("a disconnected replica reported a stall: %s", published(t, p))
		}
		time.Sleep(10 * time.Second)
		if n := stalls(t, p); n != 1 {
			t.Errorf("a stalled job must be reported after a full timeout: %s", published(t, p))
		}
		stop()
	})
}

// TestStepsOfAnotherReplicaCount: one of two replicas receives nothing of the job without noticing;
// it accepts what the other has stored.
func TestStepsOfAnotherReplicaCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		hears, deaf := start(t, bus.Client().Ports()), start(t, noSignals(bus.Client().Ports()))
		synctest.Wait()
		id := running(t, p)
		steps(t, p, id, 2, 120)
		if n := stalls(t, p); n != 0 {
			t.Errorf("a disconnected replica was believed: %s", published(t, p))
		}
		hears()
		deaf()
	})
}

// noSignals returns ports on which no progress arrives.
func noSignals(p broker.Ports) broker.Ports {
	p.Signals = mute{p.Signals}
	return p
}

type mute struct{ broker.Signals }

func TestSignalsOfUnknownJobsCreateNoDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		stop := start(t, p)
		synctest.Wait()
		steps(t, p, "nosuch-0001", 1, 30)
		if keys := controllertest.Facts(t, p, func(e events.Event) string { return e.Entity }); keys != "" {
			t.Errorf("documents: %s", keys)
		}
		if _, _, err := p.Buckets.Bucket(events.BucketJobs).Load(t.Context(), "nosuch-0001"); err == nil {
			t.Error("a signal created a document")
		}
		stop()
	})
}

func (m mute) Hear(ctx context.Context, subject, queue string, fn func(string, []byte), ready func()) error {
	if subject != events.AllProgress {
		return m.Signals.Hear(ctx, subject, queue, fn, ready)
	}
	<-ctx.Done()
	return ctx.Err()
}
