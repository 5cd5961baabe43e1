package scheduler_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/controller/controllertest"
	"github.com/regroup-io/regroup/services/scheduler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a replica inside a synctest bubble.
func start(t *testing.T, p broker.Ports) (stop func()) {
	t.Helper()
	s, err := scheduler.New(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return controllertest.Start(t, s.Run)
}

var jobSpec = spec.Job{Name: "demo", Command: []string{"train"}, Workers: spec.Workers{Min: 1, Max: 3}}

// fact publishes a fact like the service that owns its family.
func fact(t *testing.T, p broker.Ports, entity string, number uint64, b events.Body) {
	t.Helper()
	controllertest.PublishEvent(t, p, events.Event{
		ID: fmt.Sprintf("%s-%s-%d", entity, b.Type().Kind(), number), Source: "/regroup/test", Entity: entity, Number: number, Body: b,
	})
}

func node(name string, slots int) events.NodeFact {
	return events.NodeFact{Node: ident.NodeID(name), Incarnation: "A", Slots: slots}
}

func wantPool(t *testing.T, p broker.Ports, want string) {
	t.Helper()
	var rows []string
	for id, row := range controllertest.View[events.PoolView](t, p, events.BucketPlacements, events.PoolKey).Jobs {
		rows = append(rows, fmt.Sprint(id, row.Places))
	}
	slices.Sort(rows)
	if got := strings.Join(rows, " "); got != want {
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
		time.Sleep(time.Second) // two replicas apply facts in any order
		for i := range 3 {
			id := fmt.Sprintf("demo-%04d", i)
			controllertest.Record(t, p, events.BucketJobs, id, 1, events.JobView{Job: ident.JobID(id), Spec: jobSpec, State: events.JobStateWaiting})
			fact(t, p, id, 1, events.JobSubmitted{Job: ident.JobID(id), Spec: jobSpec})
			time.Sleep(time.Second)
		}
		wantPool(t, p, "demo-0000[node-a/0 node-a/1 node-b/0] demo-0001[node-b/1] demo-0002[]")
		fact(t, p, "demo-0000", 2, events.JobSucceeded{JobEnd: events.JobEnd{Job: "demo-0000"}})
		controllertest.Record(t, p, events.BucketJobs, "demo-0000", 2, events.JobView{Job: "demo-0000", Spec: jobSpec, State: events.JobStateSucceeded})
		time.Sleep(30 * time.Second)
		wantPool(t, p, "demo-0001[node-a/1 node-b/0 node-b/1] demo-0002[node-a/0]")
		stopA()
		stopB()
	})
}

// TestReconcileReplacesMissedFacts: no fact reaches the scheduler; the records of the other
// services suffice.
func TestReconcileReplacesMissedFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		view := events.NodeView{Node: "node-a", Incarnation: "A", State: events.NodeStateReady, Slots: 4}
		job := events.JobView{Job: "demo-0001", Spec: jobSpec, State: events.JobStateWaiting}
		controllertest.Record(t, p, events.BucketNodes, "node-a", 1, view)
		controllertest.Record(t, p, events.BucketJobs, "demo-0001", 1, job)
		stop := start(t, p)
		time.Sleep(time.Second)
		wantPool(t, p, "demo-0001[node-a/0 node-a/1 node-a/2]")

		job.Spec.Workers.Max = 2
		controllertest.Record(t, p, events.BucketJobs, "demo-0001", 2, job)
		time.Sleep(11 * time.Second)
		wantPool(t, p, "demo-0001[node-a/0 node-a/1]")

		view.State = events.NodeStateLost
		controllertest.Record(t, p, events.BucketNodes, "node-a", 2, view)
		time.Sleep(11 * time.Second)
		wantPool(t, p, "demo-0001[]")

		job.State = events.JobStateFailed
		controllertest.Record(t, p, events.BucketJobs, "demo-0001", 3, job)
		time.Sleep(11 * time.Second)
		wantPool(t, p, "")
		stop()
	})
}

// TestOldRecordDoesNotUndoAFact: the record was read before the fact arrived.
func TestOldRecordDoesNotUndoAFact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		controllertest.Record(t, p, events.BucketNodes, "node-a", 1, events.NodeView{Node: "node-a", Incarnation: "A", State: events.NodeStateReady, Slots: 4})
		controllertest.Record(t, p, events.BucketJobs, "demo-0001", 1, events.JobView{Job: "demo-0001", Spec: jobSpec, State: events.JobStateWaiting})
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

// TestJobWithoutARecordIsReleased: a job whose record was removed, by hand or by a command, keeps
// no slot, although its submit may be published again afterwards.
func TestJobWithoutARecordIsReleased(t *testing.T) {
	for name, remembered := range map[string]bool{"by hand": false, "by a command": true} {
		t.Run(name, func(t *testing.T) { releasedWithoutARecord(t, remembered) })
	}
}

func releasedWithoutARecord(t *testing.T, remembered bool) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		if remembered {
			controllertest.Record(t, p, events.BucketJobs, "demo-0001", 2, events.JobView{Job: "demo-0001"})
		}
		stop := start(t, p)
		synctest.Wait() // the first reconciliation is over, the next follows after 10 s
		fact(t, p, "node-a", 1, events.NodeJoined{NodeFact: node("node-a", 2)})
		fact(t, p, "demo-0001", 1, events.JobSubmitted{Job: "demo-0001", Spec: jobSpec})
		time.Sleep(time.Second)
		wantPool(t, p, "demo-0001[node-a/0 node-a/1]")
		time.Sleep(10 * time.Second)
		wantPool(t, p, "")
		stop()
	})
}

// lagging returns ports whose lists of jobs lack an existing one.
func lagging(p broker.Ports, job string) broker.Ports {
	p.Buckets = lists{p.Buckets, job}
	return p
}

type lists struct {
	broker.Buckets
	without string
}

func (l lists) Bucket(name string) broker.Bucket {
	if name != events.BucketJobs {
		return l.Buckets.Bucket(name)
	}
	return list{l.Buckets.Bucket(name), l.without}
}

type list struct {
	broker.Bucket
	without string
}

func (l list) Watch(ctx context.Context, fn func(string, []byte, uint64), listed func()) error {
	return l.Bucket.Watch(ctx, func(key string, value []byte, revision uint64) {
		if key != l.without {
			fn(key, value, revision)
		}
	}, listed)
}

// TestJobMissingInAListIsNotReleased: otherwise it would wait for ever while slots are free.
func TestJobMissingInAListIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stop := start(t, lagging(bus.Client().Ports(), "demo-0001"))
		synctest.Wait()
		job := events.JobView{Job: "demo-0001", Spec: jobSpec, State: events.JobStateWaiting}
		controllertest.Record(t, p, events.BucketJobs, "demo-0001", 1, job)
		fact(t, p, "demo-0001", 1, events.JobSubmitted{Job: "demo-0001", Spec: jobSpec})
		time.Sleep(30 * time.Second)
		fact(t, p, "node-a", 1, events.NodeJoined{NodeFact: node("node-a", 2)})
		time.Sleep(time.Minute)
		wantPool(t, p, "demo-0001[node-a/0 node-a/1]")
		stop()
	})
}

// TestLargeSpecificationsAreNotInThePool: specifications of any length do not prevent placements,
// and placement.set contains them.
func TestLargeSpecificationsAreNotInThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stop := start(t, bus.Client().Ports())
		synctest.Wait()
		const jobs, length = 60, 100 << 10
		text := make([]byte, length)
		_, _ = rand.NewChaCha8([32]byte{1}).Read(text)
		for i := range jobs {
			id := fmt.Sprintf("large-%04d", i)
			large := spec.Job{Name: "large", Command: []string{"train"}, Workers: spec.Workers{Min: 1, Max: 1}, Env: map[string]string{"X": hex.EncodeToString(text) + id}}
			controllertest.Record(t, p, events.BucketJobs, id, 1, events.JobView{Job: ident.JobID(id), Spec: large, State: events.JobStateWaiting})
			fact(t, p, id, 1, events.JobSubmitted{Job: ident.JobID(id), Spec: large})
			time.Sleep(time.Second)
		}
		fact(t, p, "node-a", 1, events.NodeJoined{NodeFact: node("node-a", 2)})
		time.Sleep(time.Second)
		stored, _, err := p.Buckets.Bucket(events.BucketPlacements).Load(t.Context(), events.PoolKey)
		if err != nil || len(stored) > 16<<10 {
			t.Errorf("the pool of %d jobs has %d bytes (%v)", jobs, len(stored), err)
		}
		placed := controllertest.Facts(t, p, func(e events.Event) string {
			if set, ok := e.Body.(events.PlacementSet); ok && strings.HasSuffix(set.Spec.Env["X"], string(set.Job)) {
				return string(set.Job)
			}
			return ""
		}, events.FamilySubject(events.FamilyPlacement, "*"))
		if got := strings.Join(strings.FieldsFunc(placed, func(r rune) bool { return r == ',' || r == ' ' }), " "); got != "large-0000 large-0001" {
			t.Errorf("placed with their specifications: %q", got)
		}
		stop()
	})
}
