package registry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
)

// seen asks any replica for a job's progress.
func seen(t *testing.T, p broker.Ports, id ident.JobID) (events.JobProgress, bool) {
	t.Helper()
	query, err := bodies.Encode(events.ProgressQuery{Jobs: []ident.JobID{id, "nobody-0001"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	answer, err := p.Calls.Call(ctx, events.RequestSubject(events.ServiceRegistry, events.VerbProgress), query)
	if err != nil {
		t.Fatal(err)
	}
	a, err := bodies.Decode[events.ProgressAnswer](answer)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := a.Jobs["nobody-0001"]; ok {
		t.Error("it has heard of a job that does not exist")
	}
	h, ok := a.Jobs[id]
	return h, ok
}

// TestNewestStepIsAnsweredBeforeItIsStored: every replica answers with the newest step and values
// from memory; they are stored every few seconds, however fast they arrive, and at the end.
func TestNewestStepIsAnsweredBeforeItIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stopA, stopB := start(t, bus.Client().Ports()), start(t, bus.Client().Ports())
		synctest.Wait()
		id := running(t, p)
		if h, ok := seen(t, p, id); ok {
			t.Errorf("it has heard %+v before anybody said so", h)
		}
		_, before, err := p.Buckets.Bucket(events.BucketJobs).Load(t.Context(), string(id))
		if err != nil {
			t.Fatal(err)
		}
		say := func(rank ident.Rank, step uint64, loss float64) {
			data, err := bodies.Encode(events.Progress{Job: id, Place: two[0], Generation: 1, Rank: rank, Step: step, Metrics: map[string]float64{"loss": loss}})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Signals.Send(events.ProgressSubject(id), data); err != nil {
				t.Fatal(err)
			}
		}
		for step := uint64(2); step <= 1001; step++ {
			say(0, step, 1/float64(step))
			say(1, step, 7) // a lower rank whose step is as new takes precedence
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
			h, ok := seen(t, p, id)
			want := events.Metric{Value: 1 / float64(step), Step: step, At: h.At}
			if !ok || h.Step != step || h.Generation != 1 || h.Reported["loss"] != want || time.Since(h.At) > time.Second {
				t.Fatalf("after step %d it has heard %+v", step, h)
			}
		}
		_, after, err := p.Buckets.Bucket(events.BucketJobs).Load(t.Context(), string(id))
		if err != nil || after-before > 5 || after == before {
			t.Errorf("1000 steps in 20 s were stored %d times (%v), want 1 to 5", after-before, err)
		}
		say(0, 1002, 0.5)
		fact(t, p, "x1", string(id), 0, events.WorkerExited{WorkerRef: ref(id, two[0], "w1"), ExitCode: 1, Detail: "exit code 1", Step: 1003, Metrics: map[string]float64{"loss": 0.25, "accuracy": 0.75}, MetricSteps: map[string]uint64{"accuracy": 1000}})
		synctest.Wait()
		time.Sleep(time.Second)
		v := view(t, p, id)
		if l, a := v.Reported["loss"], v.Reported["accuracy"]; l.Value != 0.25 || l.Step != 1003 || a.Value != 0.75 || a.Step != 1000 {
			t.Errorf("the last values are %+v, want those that came with the exit", v.Reported)
		}
		stopA()
		stopB()
	})
}

// TestServiceReportsItsPresence as long as one replica runs.
func TestServiceReportsItsPresence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		alive := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := p.Calls.Call(ctx, events.RequestSubject(events.ServiceRegistry, events.VerbAlive), []byte("{}"))
			return err
		}
		stopA, stopB := start(t, bus.Client().Ports()), start(t, bus.Client().Ports())
		synctest.Wait()
		if err := alive(); err != nil {
			t.Error(err)
		}
		stopA()
		if err := alive(); err != nil {
			t.Error("one is left:", err)
		}
		stopB()
		if err := alive(); errcode.Of(err) != errcode.Unavailable {
			t.Errorf("no replica is left: %v", err)
		}
	})
}
