package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/controller/controllertest"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func process(t *testing.T, tr *controller.Processor[sum], inputs ...events.Input) controller.Result {
	t.Helper()
	out, err := tr.Process(t.Context(), "a", inputs, noon)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRepeatedInputIsAppliedOnce(t *testing.T) {
	p := memory.New().Ports()
	tr := processor(t, p)
	process(t, tr, input("1", scale("a", 2)), input("2", scale("a", 2)), input("1", scale("a", 2)))
	out := process(t, tr, input("2", scale("a", 2)))
	if !out.Inputs[0].Repeat || len(out.Facts) != 0 {
		t.Errorf("the repeat was applied again: %+v", out)
	}
	// Another replica without a cache knows it too.
	process(t, processor(t, p), input("1", scale("a", 2)))
	// The same id of another source is another input.
	other := input("1", scale("a", 2))
	other.Source = "/other"
	process(t, tr, other)
	if got := count(t, p, "a"); got != 3 {
		t.Errorf("count is %d, want 3", got)
	}
	wantPublished(t, p, "scaled 1", "scaled 2", "scaled 3")
}

// TestARefusalIsNoRepeat: it is published after the document is stored, by the next replica if the
// first has died meanwhile.
func TestARefusalIsNoRepeat(t *testing.T) {
	p := memory.New().Ports()
	tr := processor(t, p)
	refused := input("2", events.JobStop{Job: "a"})
	process(t, tr, input("1", scale("a", 2)), refused)
	for _, next := range []*controller.Processor[sum]{tr, processor(t, p)} {
		if out := process(t, next, input("1", scale("a", 2)), refused); out.Inputs[1].Repeat || out.Inputs[1].Refusal == nil || !out.Inputs[0].Repeat {
			t.Errorf("asked again: %+v", out.Inputs)
		}
	}
	if got := count(t, p, "a"); got != 1 {
		t.Errorf("count is %d, want 1", got)
	}
}

func TestRingIsBounded(t *testing.T) {
	p := memory.New().Ports()
	tr := processor(t, p)
	for i := range 300 {
		process(t, tr, input(fmt.Sprint(i), scale("a", 2)))
	}
	value, _, err := p.Buckets.Bucket(events.BucketJobs).Load(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	d, err := document.Decode(value)
	if err != nil || len(d.Applied) != 256 || len(d.Outbox) != 1 || d.Version != 300 {
		t.Errorf("ring %d, outbox %d, version %d, %v; want 256, 1, 300", len(d.Applied), len(d.Outbox), d.Version, err)
	}
}

func TestRepeatedRequestIsAnsweredAgainWithoutASave(t *testing.T) {
	bus := memory.New()
	tr := processor(t, bus.Ports())
	process(t, tr, input("1", scale("a", 2)))
	bus.FailSaves(func(string, string) (bool, error) { return false, errors.New("there must be no save") })
	for range 2 {
		out := process(t, tr, events.Input{Body: events.MemberJoin{Job: "a"}})
		if got := out.Inputs[0].Reply.(events.MemberWaiting).Proposed; got != 1 {
			t.Errorf("answered %d, want 1", got)
		}
	}
}

// TestReplyIsNotMadeFromAStaleCache: processing that changes nothing is not protected by a
// compare-and-set, so it must not be based on an old state.
func TestReplyIsNotMadeFromAStaleCache(t *testing.T) {
	p := memory.New().Ports()
	a, b := processor(t, p), processor(t, p)
	process(t, a, input("1", scale("a", 2)))
	process(t, b, input("2", scale("a", 2)))
	out := process(t, a, events.Input{Body: events.MemberJoin{Job: "a"}})
	if got := out.Inputs[0].Reply.(events.MemberWaiting).Proposed; got != 2 {
		t.Errorf("answered %d from an old state, want 2", got)
	}
}

func TestOutboxOfADeadReplicaIsPublishedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		dead := processor(t, p)
		bus.FailPublishes(func(string) (bool, error) { return false, errcode.Errorf(errcode.Unavailable, "crashed here") })
		if out := process(t, dead, input("1", scale("a", 7))); out.Unpublished == nil {
			t.Error("the outbox counts as published although nothing could be published")
		}
		bus.FailPublishes(nil)
		wantPublished(t, p)
		for range 2 { // each new replica finds the same outbox
			other := processor(t, p)
			process(t, other, input("1", scale("a", 7)))
			// The broker has forgotten the ids.
			time.Sleep(time.Hour)
			if err := other.Publish(t.Context(), "a"); err != nil {
				t.Error(err)
			}
		}
		wantPublished(t, p, "scaled 1")
		last, err := p.Log.Last(t.Context(), events.StreamLaunches, events.LaunchSubject("node-a", "a"))
		var l events.Launch
		if err != nil || json.Unmarshal(last.Data, &l) != nil || l.Revision != 1 || last.Sequence != 1 {
			t.Errorf("launch %+v at %d, %v; want revision 1 published once", l, last.Sequence, err)
		}
	})
}

// TestOrderSurvivesATakeover: another replica publishes the waiting outbox before its own facts, so
// that the numbers in the log only rise.
func TestOrderSurvivesATakeover(t *testing.T) {
	bus := memory.New()
	p := bus.Ports()
	bus.FailPublishes(func(string) (bool, error) { return false, errcode.Errorf(errcode.Unavailable, "crashed here") })
	process(t, processor(t, p), input("1", scale("a", 2)))
	process(t, processor(t, p), input("2", scale("a", 2)))
	bus.FailPublishes(nil)
	process(t, processor(t, p), input("3", scale("a", 2)))
	wantPublished(t, p, "scaled 1", "scaled 2", "scaled 3")
}

func TestLostAcknowledgementOfASave(t *testing.T) {
	bus := memory.New()
	p := bus.Ports()
	tr := processor(t, p)
	lose := true
	bus.FailSaves(func(string, string) (bool, error) {
		l := lose
		lose = false
		return l, nil
	})
	out := process(t, tr, input("1", scale("a", 2)))
	if len(out.Facts) != 1 {
		t.Errorf("outcome %+v, want the one fact", out)
	}
	lose = true
	process(t, tr, input("2", scale("a", 2)))
	if got := count(t, p, "a"); got != 2 {
		t.Errorf("count is %d, want 2", got)
	}
	wantPublished(t, p, "scaled 1", "scaled 2")
}

// TestUnansweredSaveIsResolved: the bucket answers neither the save nor the following load; the
// inputs are given again and are found applied.
func TestUnansweredSaveIsResolved(t *testing.T) {
	bus := memory.New()
	p := bus.Ports()
	client := bus.Client()
	tr := processor(t, client.Ports())
	process(t, tr, input("1", scale("a", 2)))
	b := doubtful{real: p.Buckets.Bucket(events.BucketJobs)}
	tr2, err := controller.NewProcessor(controller.Options[sum]{
		Service: events.ServiceRegistry, Machine: counter{}, Bucket: events.BucketJobs, NewID: func() string { return "n" },
		Ports: broker.Ports{Log: p.Log, Calls: p.Calls, Signals: p.Signals, Buckets: doubtfulBuckets{&b}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr2.Process(t.Context(), "a", []events.Input{input("2", scale("a", 2))}, noon); !errors.Is(err, errcode.ErrUnavailable) {
		t.Errorf("error %v, want Unavailable", err)
	}
	out, err := tr2.Process(t.Context(), "a", []events.Input{input("2", scale("a", 2))}, noon)
	if err != nil || !out.Inputs[0].Repeat {
		t.Errorf("%+v, %v; want a repeat", out, err)
	}
	if got := count(t, p, "a"); got != 2 {
		t.Errorf("count is %d, want 2", got)
	}
	wantPublished(t, p, "scaled 1", "scaled 2")
}

func TestConflictsEnd(t *testing.T) {
	bus := memory.New()
	p := bus.Ports()
	tr := processor(t, p)
	races := 0
	bus.FailSaves(func(string, string) (bool, error) {
		if races++; races <= 15 {
			return false, errcode.Errorf(errcode.Conflict, "another writer was first")
		}
		return false, nil
	})
	process(t, tr, input("1", scale("a", 2)))
	if got := count(t, p, "a"); got != 1 || races != 16 {
		t.Errorf("count %d after %d saves, want 1 after 16", got, races)
	}
	bus.FailSaves(func(string, string) (bool, error) {
		return false, errcode.Errorf(errcode.Conflict, "another writer was first")
	})
	_, err := tr.Process(t.Context(), "a", []events.Input{input("2", scale("a", 2))}, noon)
	if !errors.Is(err, errcode.ErrConflict) {
		t.Errorf("error %v, want Conflict after a bounded number of tries", err)
	}
}

func TestDocumentOfANewerVersionIsRefused(t *testing.T) {
	p := memory.New().Ports()
	b := p.Buckets.Bucket(events.BucketJobs)
	if _, err := b.Save(t.Context(), "a", []byte(`{"schema":99,"version":1,"state":{}}`), 0); err != nil {
		t.Fatal(err)
	}
	tr := processor(t, p)
	for range 2 { // the second time from the cache
		_, err := tr.Process(t.Context(), "a", []events.Input{input("1", scale("a", 2))}, noon)
		if !errors.Is(err, errcode.ErrNewer) || !strings.Contains(err.Error(), "upgrade") {
			t.Errorf("error %v, want Newer", err)
		}
	}
}

func TestForgetRemovesTheDocumentAfterPublication(t *testing.T) {
	bus := memory.New()
	p := bus.Ports()
	tr := processor(t, p)
	process(t, tr, input("1", scale("a", 2)))
	bus.FailPublishes(func(string) (bool, error) { return false, errcode.Errorf(errcode.Unavailable, "no leader") })
	process(t, tr, input("2", events.JobStop{Job: "a", Now: true}))
	if count(t, p, "a") < 0 {
		t.Error("the document was removed before its end was published")
	}
	bus.FailPublishes(nil)
	process(t, tr, events.Input{Body: events.Tick{}})
	if got := count(t, p, "a"); got != -1 {
		t.Errorf("the document is still there with %d", got)
	}
	// An entity of the same name continues with the numbers: readers drop lower ones.
	process(t, processor(t, p), input("3", scale("a", 2)))
	wantPublished(t, p, "scaled 1", "stopped 2", "scaled 3")
}

// TestNumbersContinueAfterASaveWithoutFacts: a document may be saved before its first fact; the
// numbers then continue where the log ends.
func TestNumbersContinueAfterASaveWithoutFacts(t *testing.T) {
	bus := memory.New()
	p := bus.Ports()
	process(t, processor(t, p), input("1", scale("a", 2)), input("2", events.JobStop{Job: "a", Now: true}))
	state := `{"view":{"count":5}}`
	if _, err := p.Buckets.Bucket(events.BucketJobs).Save(t.Context(), "a", []byte(`{"schema":1,"version":1,"state":`+state+`}`), 0); err != nil {
		t.Fatal(err)
	}
	asked := &counted{Log: p.Log}
	p.Log = asked
	tr := processor(t, p)
	process(t, tr, input("3", scale("a", 2)))
	process(t, tr, input("4", scale("a", 2)), input("5", scale("a", 2)))
	wantPublished(t, p, "scaled 1", "stopped 2", "scaled 3", "scaled 4", "scaled 5")
	if asked.n != 1 {
		t.Errorf("the log was asked %d times, want once: then the number is in the document", asked.n)
	}
}

// TestRefusalHidesNoNumber: a refusal has no number. As the last message it does not hide the
// earlier numbers.
func TestRefusalHidesNoNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		process(t, processor(t, p), input("1", scale("a", 2)), input("2", events.JobStop{Job: "a", Now: true}))
		controllertest.Publish(t, p, refusal(t, "r1"))
		bus.FailPublishes(func(string) (bool, error) { return true, errcode.Errorf(errcode.Unavailable, "the answer is lost") })
		process(t, processor(t, p), input("3", scale("a", 2)))
		bus.FailPublishes(nil)
		controllertest.Publish(t, p, refusal(t, "r2"))
		time.Sleep(time.Hour) // the broker has forgotten the ids
		process(t, processor(t, p), input("4", scale("a", 2)))
		wantPublished(t, p, "scaled 1", "stopped 2", "rejected 0", "scaled 3", "rejected 0", "scaled 4")
	})
}

func refusal(t *testing.T, id string) broker.Message {
	t.Helper()
	m, err := cloudevent.Encode(events.Event{ID: id, Source: "/test", Entity: "a", Time: noon, Body: events.JobRejected{Job: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// counted counts the reads of a last message.
type counted struct {
	broker.Log
	n int
}

func (c *counted) Last(ctx context.Context, stream, subject string) (broker.Stored, error) {
	c.n++
	return c.Log.Last(ctx, stream, subject)
}

func TestPanicOfTheMachineIsAnError(t *testing.T) {
	tr := processor(t, memory.New().Ports())
	_, err := tr.Process(t.Context(), "a", []events.Input{input("1", scale("a", 13))}, noon)
	if errcode.Of(err) != errcode.Internal || !strings.Contains(err.Error(), "thirteen") {
		t.Errorf("error %v, want Internal that names the panic", err)
	}
}

func TestFactsCarryCauseTraceAndSource(t *testing.T) {
	tr := processor(t, memory.New().Ports())
	in := input("1", scale("a", 2))
	in.Trace = tracing.JobTrace("a")
	f := process(t, tr, in).Facts[0]
	if f.ID != "registry-a-job-1" || f.Source != "/regroup/registry" || f.Cause != "1" || f.Trace != in.Trace || f.Number != 1 || !f.Time.Equal(noon) {
		t.Errorf("fact %+v", f)
	}
}
