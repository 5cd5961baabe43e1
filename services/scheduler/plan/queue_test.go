package plan_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

// fullPool returns a pool of one node with some slots and that many jobs of one worker.
func fullPool(t testing.TB, jobs, slots int) plan.State {
	t.Helper()
	m := plan.Machine{}
	s := m.New(events.PoolKey)
	s, _ = m.Step(s, events.Input{Number: 1, Body: events.NodeJoined{NodeFact: events.NodeFact{Node: "n1", Incarnation: "A", Slots: slots}}}, noon)
	for i := range jobs {
		s, _ = m.Apply(s, submit(i), noon)
	}
	s, _ = m.Conclude(s, submit(jobs-1), noon)
	return s
}

func jobID(i int) ident.JobID { return ident.JobIDFrom("train-resnet", "/client", fmt.Sprint(i)) }

func submit(i int) events.Input {
	return events.Input{Number: 1, Body: events.JobSubmitted{Job: jobID(i), Spec: spec.Job{Name: "train-resnet", Workers: spec.Workers{Min: 1, Max: 1}}}}
}

// TestFactsDoNotGrowWithTheQueue covers a job that ends and one that is submitted.
func TestFactsDoNotGrowWithTheQueue(t *testing.T) {
	m := plan.Machine{}
	for _, queued := range []int{10, 1000} {
		s := fullPool(t, 8+queued, 8)
		for i := range 8 {
			var d events.Decision
			s, d = m.Step(s, events.Input{Number: 2, Body: events.JobSucceeded{JobEnd: events.JobEnd{Job: jobID(i)}}}, noon)
			if len(d.Facts) > 3 { // it is released, the next is placed, and the one after that becomes the first
				t.Fatalf("%d queued: the end of one job published %d facts: %+v", queued, len(d.Facts), d.Facts)
			}
		}
		_, d := m.Step(s, submit(100_000), noon)
		if len(d.Facts) != 1 {
			t.Errorf("%d queued: one more published %d facts", queued, len(d.Facts))
		}
		_, d = m.Step(s, events.Input{Number: 2, Body: events.NodeLost{NodeFact: events.NodeFact{Node: "n1", Incarnation: "A", Slots: 8}}}, noon)
		if len(d.Facts) > 8+1 {
			t.Errorf("%d queued: the loss of the only node published %d facts", queued, len(d.Facts))
		}
	}
}

// TestQueueIsBounded: the pool holds the maximum number of jobs within the limit of its bucket, and
// those beyond stay outside until there is room.
func TestQueueIsBounded(t *testing.T) {
	s := fullPool(t, 25_000, 8)
	if len(s.Queue) != 20_000 || len(s.View.Queue) != 20_000-8 {
		t.Fatalf("%d jobs in the pool, %d queued", len(s.Queue), len(s.View.Queue))
	}
	for _, c := range []struct {
		multiple int
		gpu      *spec.GPU
	}{{}, {multiple: 2}, {gpu: &spec.GPU{Model: "H100", Memory: "80GB"}}} {
		for i := range s.Queue {
			s.Queue[i].MultipleOf, s.Queue[i].GPU = c.multiple, c.gpu
		}
		raw, err := json.Marshal(s.Pack())
		if err != nil {
			t.Fatal(err)
		}
		doc, err := document.Encode(document.Document{Schema: document.Schema, State: raw})
		if err != nil || len(doc) > 512<<10 {
			t.Errorf("with multiples of %d, and %v, the document has %d bytes (%v), want at most half of a message", c.multiple, c.gpu, len(doc), err)
		}
	}
	m := plan.Machine{}
	s, _ = m.Step(s, events.Input{Body: events.JobStopped{JobEnd: events.JobEnd{Job: jobID(0)}}}, noon)
	s, _ = m.Step(s, submit(24_999), noon)
	if _, in := s.View.Jobs[jobID(24_999)]; !in || len(s.Queue) != 20_000 {
		t.Errorf("one that was left out came in: %t, with %d jobs in the pool", in, len(s.Queue))
	}
}

// TestPackedStatesAreTheSame stores and reloads states.
func TestPackedStatesAreTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := plan.Machine{}
		s := m.New(events.PoolKey)
		for _, in := range deliver(t, history(t)) {
			s, _ = m.Step(s, in, noon)
			raw, err := json.Marshal(s.Pack())
			if err != nil {
				t.Fatal(err)
			}
			var read plan.State
			if err := json.Unmarshal(raw, &read); err != nil {
				t.Fatal(err)
			}
			if read, err = read.Unpack(); err != nil {
				t.Fatalf("%v: %s", err, raw)
			}
			again, err := json.Marshal(read.Pack())
			if err != nil || string(again) != string(raw) || (len(s.Queue) > 0 && !reflect.DeepEqual(read.Queue, s.Queue)) || len(read.View.Jobs) != len(s.View.Jobs) {
				t.Fatalf("stored\n%+v\nread\n%+v\nas %s\nthen %s", s, read, raw, again)
			}
		}
	})
}

// TestFactsDoNotGrowWithQueuesOfGPUs: as above, of jobs that ask for one of two models each.
func TestFactsDoNotGrowWithQueuesOfGPUs(t *testing.T) {
	m := plan.Machine{}
	gpu := func(model string) *spec.GPU { return &spec.GPU{Model: model} }
	id := func(i int) ident.JobID { return ident.JobID(fmt.Sprint("job-", i)) }
	s := m.New(events.PoolKey)
	s, _ = m.Step(s, events.Input{Number: 1, Body: events.NodeJoined{NodeFact: events.NodeFact{
		Node: "n1", Incarnation: "A", Slots: 8, GPUs: []devices.Slots{{Count: 4, Model: "H100"}, {Count: 4, Model: "T4"}},
	}}}, noon)
	for i := range 1000 {
		in := submit(i)
		b := in.Body.(events.JobSubmitted)
		b.Job, b.Spec.GPU = id(i), gpu([]string{"H100", "T4"}[i%2])
		in.Body = b
		s, _ = m.Apply(s, in, noon)
	}
	s, _ = m.Conclude(s, submit(999), noon)
	if len(s.View.Queue) != 992 || len(s.View.GPUQueues) != 2 {
		t.Fatalf("%d are queued, for %+v", len(s.View.Queue), s.View.GPUQueues)
	}
	for i := range 8 {
		var d events.Decision
		s, d = m.Step(s, events.Input{Number: 2, Body: events.JobSucceeded{JobEnd: events.JobEnd{Job: id(i)}}}, noon)
		if len(d.Facts) > 3 {
			t.Fatalf("the end of one job published %d facts: %+v", len(d.Facts), d.Facts)
		}
		if next := s.View.Jobs[id(i+8)].Places; len(next) != 1 || int(next[0].Slot)/4 != i%2 {
			t.Fatalf("after the end of job %d the next of its kind has %v", i, next)
		}
	}
}

// BenchmarkQueue measures one job's end and one placement with a queue of 10,000, including the
// encoding of the document.
func BenchmarkQueue(b *testing.B) {
	m := plan.Machine{}
	s := fullPool(b, 10_008, 8)
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		s, _ = m.Step(s, events.Input{Number: 2, Body: events.JobSucceeded{JobEnd: events.JobEnd{Job: s.Queue[0].ID}}}, noon)
		s, _ = m.Step(s, submit(20_000+i), noon)
		raw, err := json.Marshal(s.Pack())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := document.Encode(document.Document{Schema: document.Schema, State: raw}); err != nil {
			b.Fatal(err)
		}
	}
}
