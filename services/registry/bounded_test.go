package registry

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/registry/job"
)

// failing is a job whose workers all fail with the largest exits that any version of the agent
// reports.
type failing struct {
	t         *testing.T
	processor *controller.Processor[job.State]
	p         broker.Ports
	now       time.Time
	random    *rand.Rand
	printed   int
	inputs    []events.Input
}

func newFailing(t *testing.T, workers int) *failing {
	p := memory.New().Ports()
	n := 0
	tr, err := controller.NewProcessor(controller.Options[job.State]{
		Service: events.ServiceRegistry, Machine: job.Machine{}, Bucket: events.BucketJobs, Ports: p,
		NewID: func() string { n++; return fmt.Sprint(n) },
	})
	if err != nil {
		t.Fatal(err)
	}
	f := &failing{t: t, processor: tr, p: p, now: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), random: rand.New(rand.NewPCG(1, 2))}
	budget := 10_000
	f.say(events.JobSubmit{Spec: spec.Job{
		Name: "demo", Command: []string{"x"}, Recovery: spec.RecoveryInProcess,
		Workers: spec.Workers{Min: 1, Max: workers}, Failures: spec.Failures{Max: &budget, SameStep: 1000},
	}})
	return f
}

// say queues a body as a replica reads it from the log.
func (f *failing) say(b events.Body) {
	f.t.Helper()
	f.printed++
	e := events.Event{ID: fmt.Sprint(f.printed), Source: "/test", Entity: "demo", Body: b}
	m, err := cloudevent.Encode(e)
	if err != nil {
		f.t.Fatal(err)
	}
	got, err := cloudevent.Decode(m.Header, m.Data)
	if err != nil {
		f.t.Fatal(err)
	}
	f.inputs = append(f.inputs, events.Input{ID: got.ID, Source: got.Source, Body: got.Body})
}

// process applies the queued inputs in one batch, like a controller under load.
func (f *failing) process() {
	f.t.Helper()
	f.now = f.now.Add(time.Second)
	if _, err := f.processor.Process(f.t.Context(), "demo", f.inputs, f.now); err != nil {
		f.t.Fatal(err)
	}
	f.inputs = nil
}

// noise returns text that compresses by at most a quarter.
func (f *failing) noise(n int) string {
	b := make([]byte, n*3/4+3)
	for i := range b {
		b[i] = byte(f.random.Uint32())
	}
	return base64.StdEncoding.EncodeToString(b)[:n]
}

func (f *failing) exits(place ident.Place, attempt int, g ident.Generation, lines []string, detail string) {
	f.say(events.WorkerExited{
		WorkerRef: tables.WorkerRef{
			Job: "demo", Place: place, Agent: "A1", Attempt: attempt, Generation: g,
			Incarnation: ident.Incarnation(fmt.Sprintf("w-%s-%d-%d", place.Node, place.Slot, attempt)),
		},
		ExitCode: 1, Detail: detail, Lines: lines,
	})
}

func (f *failing) view() events.JobView {
	f.t.Helper()
	value, _, err := f.p.Buckets.Bucket(events.BucketJobs).Load(f.t.Context(), "demo")
	if err != nil {
		f.t.Fatal(err)
	}
	v, err := document.View[events.JobView](value)
	if err != nil {
		f.t.Fatal(err)
	}
	return v
}

// TestExitIsAlwaysRecorded: eight workers that each leave 20 lines of 16 KiB, and one with an error
// text of 900 KB.
func TestExitIsAlwaysRecorded(t *testing.T) {
	f := newFailing(t, 9)
	for i := range 8 {
		var lines []string
		for range 20 {
			lines = append(lines, f.noise(16<<10))
		}
		f.exits(ident.Place{Node: "node-a", Slot: ident.Slot(i)}, 1, 0, lines, "exit code 1")
	}
	f.exits(ident.Place{Node: "node-b"}, 1, 0, []string{f.noise(900_000) + " ValueError: at the end"}, "exit code 1")
	f.process()
	v := f.view()
	if len(v.Workers) != 9 {
		t.Fatalf("%d of 9 workers are on record", len(v.Workers))
	}
	for _, w := range v.Workers {
		text := strings.Join(w.Lines, "\n")
		if w.State != tables.WorkerStateFailed || !strings.Contains(text, "left out]") {
			t.Errorf("%s is %s and says %.80q", w.Place, w.State, text)
		}
	}
	last := v.Workers[8].Lines
	if text := last[len(last)-1]; !strings.HasSuffix(text, "ValueError: at the end") {
		t.Errorf("the error text ends with %q", text[max(0, len(text)-40):])
	}
	if f := v.FirstError; f == nil || f.Place.Slot != 0 || len(f.Lines) == 0 {
		t.Errorf("the first error is %+v", f)
	}
}

// TestJobFitsItsStore: thousands of failures in as many generations, each with the longest texts
// allowed.
func TestJobFitsItsStore(t *testing.T) {
	const workers = 400
	f := newFailing(t, workers)
	for attempt := 1; attempt <= 2; attempt++ {
		for i := range workers {
			place := ident.Place{Node: ident.NodeID(fmt.Sprintf("node-%d", i/8)), Slot: ident.Slot(i % 8)}
			g := ident.Generation((attempt-1)*workers + i + 1)
			f.say(events.RoundSealed{
				Job: "demo", Generation: g, From: g - 1, Cause: events.Cause{Kind: events.CauseWorkerFailed, Rank: -1, Detail: f.noise(1000)},
				Members: []tables.Member{{Place: place, Attempt: attempt, Incarnation: ident.Incarnation(fmt.Sprintf("w-%s-%d-%d", place.Node, place.Slot, attempt))}},
			})
			lines := []string{f.noise(2000), f.noise(2000), f.noise(2000), f.noise(2000)}
			f.exits(place, attempt, g, lines, f.noise(1000))
			if i%32 == 0 {
				f.process()
			}
		}
	}
	f.process()
	v := f.view()
	if n := len(v.Workers); n != workers {
		t.Errorf("%d of %d workers are on record", n, workers)
	}
	for _, w := range v.Workers {
		if w.State != tables.WorkerStateFailed || w.Attempt != 2 {
			t.Fatalf("%s is %s in attempt %d", w.Place, w.State, w.Attempt)
		}
	}
	if e := v.FirstError; e == nil || e.Attempt != 1 || e.Place.Slot != 0 {
		t.Errorf("the first error is %+v", e)
	}
	if _, err := json.Marshal(v); err != nil {
		t.Error(err)
	}
}

// TestOutboxIsBounded: a log that accepts nothing must not fill the document with unpublished
// facts.
func TestOutboxIsBounded(t *testing.T) {
	bus := memory.New()
	n := 0
	tr, err := controller.NewProcessor(controller.Options[job.State]{
		Service: events.ServiceRegistry, Machine: job.Machine{}, Bucket: events.BucketJobs, Ports: bus.Ports(),
		NewID: func() string { n++; return fmt.Sprint(n) },
	})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	process := func(b events.Body) error {
		n++
		_, err := tr.Process(t.Context(), "demo", []events.Input{{ID: fmt.Sprint(n), Source: "/test", Body: b}}, now)
		return err
	}
	if err := process(events.JobSubmit{Spec: spec.Job{Name: "demo", Command: []string{"x"}, Workers: spec.Workers{Min: 1, Max: 9}}}); err != nil {
		t.Fatal(err)
	}
	full := true
	bus.FailPublishes(func(string) (bool, error) {
		if full {
			return false, errcode.Errorf(errcode.Unavailable, "the stream is full")
		}
		return false, nil
	})
	refused := error(nil)
	for i := 0; i < 100_000 && refused == nil; i++ {
		refused = process(events.JobScale{Job: "demo", Workers: spec.Workers{Min: 1, Max: 2 + i%7}})
	}
	if !errors.Is(refused, errcode.ErrUnavailable) {
		t.Fatalf("it goes on for ever, or ends with %v", refused)
	}
	full = false
	if err := process(events.JobScale{Job: "demo", Workers: spec.Workers{Min: 1, Max: 8}}); err != nil {
		t.Errorf("it does not go on once the log takes facts again: %v", err)
	}
}

// TestDroppedLinesAreSummedOnce: each worker's exit carries the number of its lines that are not in
// the log.
func TestDroppedLinesAreSummedOnce(t *testing.T) {
	f := newFailing(t, 2)
	for slot := range 2 {
		x := events.WorkerExited{
			WorkerRef: tables.WorkerRef{Job: "demo", Place: ident.Place{Node: "node-a", Slot: ident.Slot(slot)}, Agent: "A1", Attempt: 1, Incarnation: ident.Incarnation(fmt.Sprint("w", slot))},
			Asked:     true, Detail: "exit code 0", Dropped: 18_893,
		}
		f.say(x)
		f.say(x) // repeated with another id, as an agent does after a lost acknowledgement
	}
	f.process()
	if n := f.view().Dropped; n != 2*18_893 {
		t.Errorf("%d lines were dropped, want %d", n, 2*18_893)
	}
}
