package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/cluster"
	"github.com/regroup-io/regroup/services/cluster/clustertest"
	"github.com/regroup-io/regroup/services/cluster/view"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) (*clustertest.World, *cluster.Client, context.Context) {
	w := clustertest.New(t)
	c := cluster.New(w.Ports, "/regroup/cli/test")
	c.Now = func() time.Time { return clustertest.Now }
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return w, c, ctx
}

func TestJobsAreFoundByPrefix(t *testing.T) {
	w, c, ctx := start(t)
	for i, id := range []ident.JobID{"mnist-7f3a", "mnist-7f3b", "gpt-0001", "gpt-0001-0002"} {
		w.Job(events.JobView{Job: id, State: events.JobStateWaiting, Submitted: clustertest.Now.Add(time.Duration(i) * time.Second)})
	}
	w.Job(events.JobView{Job: "mnist-9999"}) // only a stop that came before its submit
	all, err := c.Jobs(ctx)
	if err != nil || len(all) != 4 || all[0].Job != "gpt-0001-0002" || all[3].Job != "mnist-7f3a" {
		t.Errorf("jobs %v %v, want the newest first", all, err)
	}
	for ref, want := range map[string]struct {
		job  ident.JobID
		code errcode.Code
	}{
		"mnist-7f3a": {"mnist-7f3a", ""},
		"gpt-0001":   {"gpt-0001", ""}, // exact, though it begins another
		"gpt-0001-":  {"gpt-0001-0002", ""},
		"mnist":      {"", errcode.Invalid},
		"":           {"", errcode.NotFound},
		"mnist-9999": {"", errcode.NotFound},
		"MNIST":      {"", errcode.NotFound},
		"../x":       {"", errcode.NotFound},
	} {
		v, err := c.Job(ctx, ref)
		if v.Job != want.job || errcode.Of(err) != want.code {
			t.Errorf("%q: %q %v, want %q %s", ref, v.Job, err, want.job, want.code)
		}
	}
}

func TestSubmitIsAnsweredByItsOwnFact(t *testing.T) {
	w, c, ctx := start(t)
	const own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	c.Trace = cluster.Trace(func(name string) string { return map[string]string{"TRACEPARENT": own}[name] })
	if nonsense := cluster.Trace(func(string) string { return "nonsense" }); nonsense != "" {
		t.Errorf("a traceparent that cannot be read is taken for %q", nonsense)
	}
	var sent events.Event
	w.Answer(func(e events.Event) {
		sent = e
		name := e.Body.(events.JobSubmit).Spec.Name
		job := ident.JobIDFrom(name, e.Source, e.ID)
		if name == "bad" { // no job could be derived
			w.Publish(events.Event{Entity: "unknown", Body: events.JobRejected{Command: "another", Errors: []spec.FieldError{{Message: "not this"}}}})
			w.Publish(events.Event{Entity: "unknown", Body: events.JobRejected{Command: e.ID, Errors: []spec.FieldError{{Path: "a"}, {Path: "b"}}}})
			return
		}
		w.Publish(events.Event{Entity: string(job), Cause: e.ID, Body: events.JobSubmitted{Job: job}})
	})
	job, err := c.Submit(ctx, spec.Job{Name: "good", Command: []string{"x"}, Workers: spec.Workers{Min: 1, Max: 1}})
	if err != nil || job != ident.JobIDFrom("good", "/regroup/cli/test", sent.ID) {
		t.Errorf("%s %v", job, err)
	}
	if sent.Trace != own || !sent.Time.Equal(clustertest.Now) {
		t.Errorf("sent with trace %q at %s", sent.Trace, sent.Time)
	}
	_, err = c.Submit(ctx, spec.Job{Name: "bad", Command: []string{"x"}, Workers: spec.Workers{Min: 1, Max: 1}})
	if errcode.Of(err) != errcode.Invalid || len(errcode.FieldErrorsOf(err)) != 2 {
		t.Errorf("refusal: %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	_, _, ctx := start(t)
	w := clustertest.New(t)
	ports := w.Ports
	ports.Log = cut{ports.Log}
	c := cluster.New(ports, "/regroup/cli/test")
	c.AnswerWithin = 300 * time.Millisecond
	if _, err := c.Submit(ctx, spec.Job{Name: "x", Command: []string{"x"}, Workers: spec.Workers{Min: 1, Max: 1}}); errcode.Of(err) != errcode.Unavailable {
		t.Errorf("got %v, want Unavailable", err)
	}
}

type cut struct{ broker.Log }

func (cut) Publish(context.Context, broker.Message) (uint64, error) {
	return 0, errcode.Errorf(errcode.Unavailable, "not connected")
}

// TestManyFactsThatCannotBeRead: a few are named, of the others only the number is told.
func TestManyFactsThatCannotBeRead(t *testing.T) {
	w, c, ctx := start(t)
	var warned []string
	c.Warn = func(err error) { warned = append(warned, err.Error()) }
	for i := range 50 {
		m := broker.Message{Subject: events.FactSubject(events.JobSucceeded{}.Type(), "a-0001"), ID: fmt.Sprint(i), Data: []byte("nonsense")}
		if _, err := w.Ports.Log.Publish(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Facts(ctx, "a-0001", func(events.Event) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if len(warned) != 4 || warned[3] != "another 47 facts cannot be read: passed over" {
		t.Errorf("%d warnings: %q, want three and the number of the others", len(warned), warned)
	}
}

func TestFactsDropDuplicates(t *testing.T) {
	w, c, ctx := start(t)
	say := func(id string, number uint64, b events.Body) {
		w.Publish(events.Event{ID: id, Entity: "a-0001", Number: number, Body: b})
	}
	say("1", 1, events.JobSubmitted{Job: "a-0001"})
	say("2", 1, events.RoundOpened{Job: "a-0001", Proposed: 1}) // another family counts for itself
	say("3", 2, events.JobFinishing{Job: "a-0001"})
	say("4", 1, events.JobSubmitted{Job: "a-0001"})
	say("5", 0, events.WorkerDone{}) // unnumbered ones all count
	say("6", 0, events.WorkerDone{})
	w.Publish(events.Event{Entity: "b-0002", Body: events.JobSubmitted{Job: "b-0002"}})
	var got []string
	if err := c.Facts(ctx, "a-0001", func(e events.Event) error { got = append(got, e.ID); return nil }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"1", "2", "3", "5", "6"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	got = nil
	err := c.Follow(ctx, "a-0001", func(e events.Event) error {
		if got = append(got, e.ID); len(got) == 3 {
			return cluster.ErrStop
		}
		return nil
	})
	if err != nil || len(got) != 3 {
		t.Errorf("Follow: %v %v", got, err)
	}
	boom := errors.New("boom")
	if err := c.Follow(ctx, "a-0001", func(events.Event) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("Follow hides the callback's error: %v", err)
	}
	n := 0
	if err := c.AllFacts(ctx, true, func(events.Event) error { n++; return nil }); err != nil || n != 6 {
		t.Errorf("AllFacts: %d %v, want 6", n, err)
	}
}

func TestProgress(t *testing.T) {
	w, c, ctx := start(t)
	stop := make(chan struct{})
	sent := make(chan error, 1)
	go func() { // signals may be lost, so it is repeated until it is received
		for {
			select {
			case <-stop:
				sent <- nil
				return
			default:
			}
			b, err := bodies.Encode(events.Progress{Job: "a-0001", Step: 7})
			if err == nil {
				err = w.Ports.Signals.Send(events.ProgressSubject("a-0001"), b)
			}
			if err != nil {
				sent <- err
				return
			}
		}
	}()
	var got events.Progress
	err := c.Progress(ctx, "a-0001", func(p events.Progress) error { got = p; return cluster.ErrStop })
	close(stop)
	if err != nil || got.Step != 7 {
		t.Errorf("%+v %v", got, err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestRoundAndPlacement(t *testing.T) {
	w, c, ctx := start(t)
	if p, err := c.Placement(ctx); err != nil || len(p.Jobs) != 0 {
		t.Errorf("no pool yet: %v %v", p, err)
	}
	w.Put(events.BucketPlacements, events.PoolKey, events.PoolView{Jobs: map[ident.JobID]events.PlacementView{"a-0001": {Waiting: "full"}}})
	for i := range 3 {
		id := ident.JobID(fmt.Sprintf("a-%04d", 3-i))
		w.Put(events.BucketRounds, string(id), events.RoundView{Job: id})
	}
	if p, err := c.Placement(ctx); err != nil || p.Jobs["a-0001"].Waiting != "full" {
		t.Errorf("pool: %v %v", p, err)
	}
	if r, err := c.Round(ctx, "a-0002"); err != nil || r.Job != "a-0002" {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := c.Round(ctx, "z-0009"); err != nil || r.Job != "" {
		t.Errorf("a job without rendezvous: %+v, %v", r, err)
	}
}

// TestLogsHaveTheLabelsOfTheirAgent: rank and generation are those of the worker when it wrote;
// output without them is of no generation.
func TestLogsHaveTheLabelsOfTheirAgent(t *testing.T) {
	w, c, ctx := start(t)
	p, q := ident.Place{Node: "node-a"}, ident.Place{Node: "node-b", Slot: 1}
	w.PrintAs("a-0001", tables.Member{Place: p, Rank: 1}, 1, "one\r\ntwo\n")
	w.PrintAs("a-0001", tables.Member{Place: p, Rank: 0}, 2, "three")
	w.Print("a-0001", q, "four")
	w.Print("b-0002", q, "of another job\n")
	var got []string
	var last uint64
	say := func(l view.Line) error {
		got = append(got, fmt.Sprintf("%s r%d %s %s", l.Place, l.Rank, l.Generation, l.Text))
		last = l.Sequence
		return nil
	}
	if err := c.Logs(ctx, "a-0001", cluster.LogsFrom{}, say); err != nil {
		t.Fatal(err)
	}
	if want := []string{"node-a/0 r1 g1 one", "node-a/0 r1 g1 two", "node-a/0 r0 g2 three", "node-b/1 r-1 g0 four"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	w.Print("a-0001", p, "five\n")
	got = nil
	if err := c.Logs(ctx, "a-0001", cluster.LogsFrom{After: last}, say); err != nil || len(got) != 1 {
		t.Errorf("after %d: %q %v", last, got, err)
	}
}

// The registry assigns a job another id when the first belongs to another event's job; the client
// learns which.
func TestSubmitReturnsTheIDThatTheJobGot(t *testing.T) {
	w, c, ctx := start(t)
	var got ident.JobID
	w.Answer(func(e events.Event) {
		b := e.Body.(events.JobSubmit)
		got = ident.JobIDs(b.Spec.Name, e.Source, e.ID)[1]
		w.Publish(events.Event{Entity: string(got), Cause: e.ID, Body: events.JobSubmitted{Job: got, Spec: b.Spec, By: e.Source}})
	})
	job, err := c.Submit(ctx, spec.Job{Name: "mnist", Command: []string{"x"}, Workers: spec.Workers{Min: 1, Max: 1}})
	if err != nil || job != got || job == "" {
		t.Errorf("submitted %q (%v), the registry says %q", job, err, got)
	}
}
