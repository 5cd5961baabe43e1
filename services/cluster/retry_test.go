package cluster_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/cluster"
	"github.com/regroup-io/regroup/services/cluster/clustertest"
)

var jobSpec = spec.Job{Name: "x", Command: []string{"x"}, Workers: spec.Workers{Min: 1, Max: 1}}

// electing fails for a while, as a stream does during a leader election.
type electing struct {
	broker.Log
	mu   sync.Mutex
	left int
	ids  []string
}

func (e *electing) Publish(ctx context.Context, m broker.Message) (uint64, error) {
	e.mu.Lock()
	e.ids = append(e.ids, m.ID)
	e.left--
	left := e.left
	e.mu.Unlock()
	if left >= 0 {
		return 0, errcode.Errorf(errcode.Unavailable, "no stream answers")
	}
	return e.Log.Publish(ctx, m)
}

// TestASubmitWaitsForALeader checks that a command is published again, as the same message, until
// it is stored.
func TestASubmitWaitsForALeader(t *testing.T) {
	w := clustertest.New(t)
	ports := w.Ports
	log := &electing{Log: ports.Log, left: 15}
	ports.Log = log
	w.Answer(func(e events.Event) {
		job := ident.JobIDFrom("x", e.Source, e.ID)
		w.Publish(events.Event{Entity: string(job), Cause: e.ID, Body: events.JobSubmitted{Job: job}})
	})
	c := cluster.New(ports, "/regroup/cli/test")
	var printed []string
	var mu sync.Mutex
	c.Waits = func(text string) {
		mu.Lock()
		defer mu.Unlock()
		printed = append(printed, text)
	}
	if _, err := c.Submit(t.Context(), jobSpec); err != nil {
		t.Fatal(err)
	}
	if len(log.ids) != 16 || len(slices.Compact(log.ids)) != 1 {
		t.Errorf("published as %v, want 16 times the same", log.ids)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(printed) != 1 || !strings.Contains(printed[0], "waiting up to 15s") {
		t.Errorf("said %q, want once what is waited for", printed)
	}
}

// TestACommandExpiresWithItsClientsTimeout checks the expiry by the store's clock while the
// client's clock is wrong.
func TestACommandExpiresWithItsClientsTimeout(t *testing.T) {
	w := clustertest.New(t)
	c := cluster.New(w.Ports, "/regroup/cli/test")
	c.AnswerWithin = 300 * time.Millisecond
	c.Now = func() time.Time { return time.Now().Add(-time.Hour) }
	began := time.Now()
	_, err := c.Submit(t.Context(), jobSpec)
	if took := time.Since(began); errcode.Of(err) != errcode.Unavailable || took > 5*time.Second || !strings.Contains(err.Error(), "expired") {
		t.Errorf("after %s: %v, want Unavailable, and that the command has expired", took, err)
	}
	last, err := w.Ports.Log.Last(t.Context(), events.StreamCommands, events.AllCommands)
	if err != nil {
		t.Fatal(err)
	}
	e, err := cloudevent.Decode(last.Header, last.Data)
	if lifetime := e.Expires.Sub(last.Time); err != nil || lifetime <= 0 || lifetime > c.AnswerWithin {
		t.Errorf("stored at %s it expires at %s (%v), want at most %s later", last.Time, e.Expires, err, c.AnswerWithin)
	}
}

// TestARefusalOfAnotherTryIsNoAnswer checks that the refusal of an expired event is not taken for
// the reply to another event with the same id.
func TestARefusalOfAnotherTryIsNoAnswer(t *testing.T) {
	w := clustertest.New(t)
	w.Answer(func(e events.Event) {
		job := ident.JobIDFrom("x", e.Source, e.ID)
		w.Publish(events.Event{Entity: string(job), Cause: e.ID, Body: events.JobRejected{Job: job, Command: e.ID, Expired: e.Expires.Add(-time.Minute), Errors: []spec.FieldError{{Message: "expired"}}}})
		w.Publish(events.Event{Entity: string(job), Cause: e.ID, Body: events.JobSubmitted{Job: job}})
	})
	if _, err := cluster.New(w.Ports, "/client/agent/join").SubmitOnce(t.Context(), "join-x", jobSpec); err != nil {
		t.Error(err)
	}
}

// TestNothingIsAskedOfWhatDoesNotRun checks that commands go to the job's server, and that ended
// servers can only be read.
func TestNothingIsAskedOfWhatDoesNotRun(t *testing.T) {
	live, dead := clustertest.New(t), clustertest.New(t)
	live.Job(events.JobView{Job: "a-0001", State: events.JobStateRunning, By: cluster.RunSource, Submitted: clustertest.Now})
	dead.Job(events.JobView{Job: "b-0002", State: events.JobStateRunning, By: cluster.RunSource, Submitted: clustertest.Now.Add(time.Second)})
	dead.Job(events.JobView{Job: "c-0003", State: events.JobStateSucceeded, By: cluster.RunSource, Submitted: clustertest.Now.Add(time.Minute)})
	live.Answer(func(e events.Event) {
		w := e.Body.(events.JobScale)
		live.Publish(events.Event{Entity: string(w.Job), Cause: e.ID, Body: events.JobScaled(w)})
	})
	c := cluster.Of("/regroup/cli/test", cluster.Server{Ports: dead.Ports, Idle: true}, cluster.Server{Ports: live.Ports, Own: true})
	all, err := c.Jobs(t.Context())
	var got []string
	for _, v := range all {
		got = append(got, string(v.Job)+" "+string(v.State))
	}
	if want := []string{"c-0003 succeeded", "b-0002 stopped", "a-0001 running"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("jobs %v, %v; want %v", got, err, want)
	}
	for ref, want := range map[string]errcode.Code{"a": "", "b-0002": errcode.Unavailable, "c": errcode.Unavailable} {
		v, err := c.Job(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.ChangeJob(t.Context(), cluster.Scale(v.Job, spec.Workers{Min: 1, Max: 3})); errcode.Of(err) != want {
			t.Errorf("%s: %v, want %q", ref, err, want)
		}
	}
	for _, s := range []cluster.Server{{Ports: live.Ports, Own: true}, {Ports: dead.Ports, Idle: true}} {
		if _, err := cluster.Of("/x", s).Submit(t.Context(), jobSpec); errcode.Of(err) != errcode.Unavailable || !strings.Contains(err.Error(), "regroup up") {
			t.Errorf("submit: %v, want Unavailable and a remedy", err)
		}
	}
}

// counting counts the facts that are read.
type counting struct {
	broker.Log
	read atomic.Int32
}

func (c *counting) Follow(ctx context.Context, f broker.Follow, fn func(broker.Stored) error, caughtUp func()) error {
	return c.Log.Follow(ctx, f, func(s broker.Stored) error {
		if f.Stream == events.StreamFacts {
			c.read.Add(1)
		}
		return fn(s)
	}, caughtUp)
}

// TestOldFactsAreNotReadForAnAnswer checks that an answer does not take longer with the refusals of
// others that are stored, nor with the history of the job.
func TestOldFactsAreNotReadForAnAnswer(t *testing.T) {
	w := clustertest.New(t)
	for range 100 {
		w.Publish(events.Event{Entity: "unknown", Body: events.JobRejected{Command: "another", Errors: []spec.FieldError{{Message: "no"}}}})
		w.Publish(events.Event{Entity: "unknown", Body: events.NodeRejected{Command: "another", Errors: []spec.FieldError{{Message: "no"}}}})
		w.Publish(events.Event{Entity: "a-0001", Body: events.JobScaled{Job: "a-0001", Workers: jobSpec.Workers}})
	}
	w.Answer(func(e events.Event) {
		switch b := e.Body.(type) {
		case events.JobScale:
			w.Publish(events.Event{Entity: string(b.Job), Cause: e.ID, Body: events.JobScaled(b)})
		case events.NodeDrain:
			w.Publish(events.Event{Entity: "unknown", Cause: e.ID, Body: events.NodeRejected{Command: e.ID, Code: errcode.NotFound, Errors: []spec.FieldError{{Message: "no such node"}}}})
		}
	})
	ports := w.Ports
	log := &counting{Log: ports.Log}
	ports.Log = log
	c := cluster.New(ports, "/client/x")
	if err := c.ChangeJob(t.Context(), cluster.Scale("a-0001", spec.Workers{Min: 1, Max: 2})); err != nil {
		t.Error(err)
	}
	if err := c.ChangeNode(t.Context(), cluster.Drain("n1", "", false)); errcode.Of(err) != errcode.NotFound {
		t.Errorf("%v, want the refusal", err)
	}
	if n := log.read.Load(); n > 2 {
		t.Errorf("%d facts were read for two answers", n)
	}
}
