package scheduler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/services/scheduler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a replica inside a synctest bubble.
func start(t *testing.T, p events.Ports) (stop func()) {
	t.Helper()
	s, err := scheduler.New(scheduler.Options{Ports: p, Config: scheduler.DefaultConfig(), Instance: "test"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	}
}

var spec = events.Spec{Name: "demo", Command: []string{"train"}, Workers: events.Workers{Min: 1, Max: 3}}

// fact publishes a fact as its judge would.
func fact(t *testing.T, p events.Ports, entity string, number uint64, b events.Body) {
	t.Helper()
	m, err := events.Event{
		ID: fmt.Sprintf("%s-%s-%d", entity, b.Type().Kind(), number), Source: "/regroup/test", Entity: entity, Number: number, Time: time.Now(), Body: b,
	}.Message()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Log.Publish(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func node(name string, slots int) events.NodeFact {
	return events.NodeFact{Node: events.NodeID(name), Incarnation: "A", Slots: slots}
}

// record stores a judge's document.
func record(t *testing.T, p events.Ports, bucket, key string, f events.Family, number uint64, view any) {
	t.Helper()
	state, err := json.Marshal(map[string]any{"view": view})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := events.EncodeDocument(events.Document{
		Schema: events.DocumentSchema, Version: number, State: state, Number: map[events.Family]uint64{f: number},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := p.Buckets.Bucket(bucket)
	_, revision, err := b.Load(t.Context(), key)
	if err != nil {
		revision = 0
	}
	if _, err := b.Save(t.Context(), key, doc, revision); err != nil {
		t.Fatal(err)
	}
}

func wantPool(t *testing.T, p events.Ports, want string) {
	t.Helper()
	got := "no pool"
	if value, _, err := p.Buckets.Bucket(events.BucketPlacements).Load(t.Context(), events.PoolKey); err == nil {
		v, err := events.DecodeView[events.PoolView](value)
		if err != nil {
			t.Fatal(err)
		}
		var rows []string
		for id, row := range v.Jobs {
			rows = append(rows, fmt.Sprint(id, row.Places))
		}
		slices.Sort(rows)
		got = strings.Join(rows, " ")
	}
	if got != want {
		t.Errorf("pool is %q, want %q", got, want)
	}
}

func TestFactsBecomePlacements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stopA, stopB := start(t, bus.Client().Ports()), start(t, bus.Client().Ports())
		fact(t, p, "node-a", 1, events.NodeJoined{NodeFact: node("node-a", 2)})
		fact(t, p, "node-b", 1, events.NodeJoined{NodeFact: node("node-b", 2)})
		for i := range 3 {
			id := fmt.Sprintf("demo-%04d", i)
			record(t, p, events.BucketJobs, id, events.FamilyJob, 1, events.JobView{Job: events.JobID(id), Spec: spec, State: events.JobIsWaiting})
			fact(t, p, id, 1, events.JobSubmitted{Job: events.JobID(id), Spec: spec})
			time.Sleep(time.Second)
		}
		wantPool(t, p, "demo-0000[node-a/0 node-a/1 node-b/0] demo-0001[node-b/1] demo-0002[]")
		fact(t, p, "demo-0000", 2, events.JobSucceeded{JobEnd: events.JobEnd{Job: "demo-0000"}})
		record(t, p, events.BucketJobs, "demo-0000", events.FamilyJob, 2, events.JobView{Job: "demo-0000", Spec: spec, State: events.JobHasSucceed})
		time.Sleep(30 * time.Second)
		wantPool(t, p, "demo-0001[node-a/1 node-b/0 node-b/1] demo-0002[node-a/0]")
		stopA()
		stopB()
	})
}

// No fact ever reaches the scheduler: the records of the other judges are enough.
func TestReconcileMakesUpForMissedFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		view := events.NodeView{Node: "node-a", Incarnation: "A", State: events.NodeReady, Slots: 4}
		job := events.JobView{Job: "demo-0001", Spec: spec, State: events.JobIsWaiting}
		record(t, p, events.BucketNodes, "node-a", events.FamilyNode, 1, view)
		record(t, p, events.BucketJobs, "demo-0001", events.FamilyJob, 1, job)
		stop := start(t, p)
		time.Sleep(time.Second)
		wantPool(t, p, "demo-0001[node-a/0 node-a/1 node-a/2]")

		job.Spec.Workers.Max = 2
		record(t, p, events.BucketJobs, "demo-0001", events.FamilyJob, 2, job)
		time.Sleep(11 * time.Second)
		wantPool(t, p, "demo-0001[node-a/0 node-a/1]")

		view.State = events.NodeGone
		record(t, p, events.BucketNodes, "node-a", events.FamilyNode, 2, view)
		time.Sleep(11 * time.Second)
		wantPool(t, p, "demo-0001[]")

		job.State = events.JobHasFailed
		record(t, p, events.BucketJobs, "demo-0001", events.FamilyJob, 3, job)
		time.Sleep(11 * time.Second)
		wantPool(t, p, "")
		stop()
	})
}

// A record that was read before a fact came must not undo the fact.
func TestAnOldRecordDoesNotUndoAFact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		record(t, p, events.BucketNodes, "node-a", events.FamilyNode, 1, events.NodeView{Node: "node-a", Incarnation: "A", State: events.NodeReady, Slots: 4})
		record(t, p, events.BucketJobs, "demo-0001", events.FamilyJob, 1, events.JobView{Job: "demo-0001", Spec: spec, State: events.JobIsWaiting})
		stop := start(t, p)
		time.Sleep(time.Second)
		fact(t, p, "node-a", 2, events.NodeLost{NodeFact: node("node-a", 4)})
		for range 3 {
			time.Sleep(11 * time.Second)
			wantPool(t, p, "demo-0001[]")
		}
		stop()
	})
}

// A job whose record was removed by hand keeps no slot.
func TestAJobWithoutARecordIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		stop := start(t, p)
		synctest.Wait() // the first comparison is over, the next comes after 10 s
		fact(t, p, "node-a", 1, events.NodeJoined{NodeFact: node("node-a", 2)})
		fact(t, p, "demo-0001", 1, events.JobSubmitted{Job: "demo-0001", Spec: spec})
		time.Sleep(time.Second)
		wantPool(t, p, "demo-0001[node-a/0 node-a/1]")
		time.Sleep(10 * time.Second)
		wantPool(t, p, "")
		stop()
	})
}
