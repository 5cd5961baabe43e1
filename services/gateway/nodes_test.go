package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/eventstest"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/events/usage"
	"github.com/regroup-io/regroup/services/controller/controllertest"
	"github.com/regroup-io/regroup/services/gateway"
)

// put stores a service's document.
func (w *world) put(bucket, key string, view any) {
	w.Helper()
	controllertest.Record(w, w.ports, bucket, key, 0, view)
}

// node makes discovery know a node.
func (w *world) node(name ident.NodeID) {
	w.Helper()
	hello, err := bodies.Encode(events.NodeHello{Node: name, Incarnation: "01JD0000000000000000000000", Slots: 4, Address: "10.0.0.1"})
	if err != nil {
		w.Fatal(err)
	}
	w.eventually("discovery answers", func() bool {
		_, err := w.ports.Calls.Call(w.Context(), events.RequestSubject(events.ServiceDiscovery, events.VerbJoin), hello)
		return err == nil
	})
	w.eventually("the node is there", func() bool { return strings.Contains(string(w.get("/api/v1/nodes").body), string(name)) })
}

// fullJob has a value in every field of a job.
func fullJob(t testing.TB) events.JobView {
	t.Helper()
	now, lost, rank := time.Now().UTC(), uint64(3), 0
	place := ident.Place{Node: "node-a", Slot: 0}
	ref := tables.WorkerRef{Job: "full-0001", Place: place, Incarnation: "01JD0000000000000000000000", Agent: "01JD0000000000000000000001", Attempt: 1, Generation: 2, PID: 7}
	other := ref
	other.Place.Slot = 1
	cause := events.CauseAt(events.CauseWorkerFailed, place, rank, "killed by signal 9 (SIGKILL)")
	failed := tables.WorkerView{WorkerRef: ref, Rank: ident.Rank(rank), State: tables.WorkerStateFailed, Detail: "x", Lines: []string{"a"}, Exception: &tables.Exception{Type: "E", Message: "m", File: "f", Line: 1}, FailedAt: now}
	return events.JobView{
		Job: "full-0001", Spec: eventstest.SampleJob(), By: "/me", Origin: "x", State: events.JobStateFailed, Reason: "r", Code: errcode.Exhausted,
		Submitted: now.Add(-time.Minute), Ended: now, Generation: 2,
		Workers:      tables.WorkerTable{failed, {WorkerRef: other, Rank: -1, State: tables.WorkerStateStarting}},
		Generations:  []events.GenerationView{{Generation: 2, World: 1, Cause: cause, Sealed: now.Add(-time.Second), Ready: true, Members: eventstest.SampleMembers(1, 1)}},
		Incidents:    []events.IncidentClosed{{Job: "full-0001", Incident: 1, From: 1, To: 2, Cause: cause, TotalMS: 20, StepsLost: &lost, AtLeast: true, TraceID: "t"}},
		OpenIncident: &events.IncidentOpened{Job: "full-0001", Incident: 2, From: 2, Cause: events.Cause{Kind: events.CauseNodeLost, Node: "node-a", Rank: -1}},
		Failures:     []time.Time{now}, CountedFailures: []events.CountedFailure{{At: now, Place: &place, Worker: ref.Incarnation, Generation: 2, Rank: -1, Step: 5, Kind: events.FailureSignal, Detail: "d"}},
		Step: 7, StepAt: now, TimeWithoutStep: spec.Duration(time.Second), Slowest: &events.Straggler{Rank: 0, Share: .5},
		Redundancy: &events.Redundancy{
			Generation: 2, ReportedAt: now, Commit: tables.Commit{Generation: 2, Step: 6, Hash: "h"}, CommittedAt: now, Losses: 1, NodeLosses: 1,
			Checkpoint: &tables.Commit{Generation: 1, Step: 3}, CheckpointAt: now,
		},
		Ledger: tables.Ledger{Samples: 10, Epochs: []tables.LedgerEpoch{{Epoch: 0, Count: 10, Sum: 1, Done: true}}}, Metrics: map[string]float64{"loss": 1},
		Reported: map[string]events.Metric{"loss": {Value: 1, Step: 7, At: now}}, Dropped: 1, FirstError: &failed,
	}
}

// TestNodes are drained, quarantined and released, and what is wrong is said.
func TestNodes(t *testing.T) {
	w := start(t)
	w.node("node-a")
	var list gateway.NodeList
	if w.get("/api/v1/nodes").into(t, &list); len(list.Nodes) != 1 || list.Nodes[0].Usable != 4 || list.Nodes[0].Jobs == nil {
		t.Fatalf("%+v", list)
	}
	change := func(verb, body string) events.NodeView {
		t.Helper()
		var v events.NodeView
		a := w.do("POST", "/api/v1/nodes/node-a/"+verb, body)
		if a.status != http.StatusOK {
			t.Fatalf("%s: %d %s", verb, a.status, a.body)
		}
		w.eventually(verb, func() bool {
			list = gateway.NodeList{}
			w.get("/api/v1/nodes").into(t, &list)
			v = list.Nodes[0].NodeView
			return (verb == "drain") == v.Draining && (verb == "quarantine") == (v.Quarantine != nil)
		})
		return v
	}
	change("drain", `{"reason": "maintenance"}`)
	if a := w.do("POST", "/api/v1/nodes/node-a/drain", `{"undo": true}`); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	w.eventually("it takes work again", func() bool {
		list = gateway.NodeList{}
		w.get("/api/v1/nodes").into(t, &list)
		return !list.Nodes[0].Draining
	})
	if v := change("quarantine", `{"for": "10m", "reason": "test"}`); !v.Quarantine.ByHand || time.Until(v.Quarantine.Until) < 9*time.Minute {
		t.Errorf("%+v", v.Quarantine)
	}
	change("release", `{}`)
	for _, c := range []struct {
		path, body string
		status     int
		about      string
	}{
		{"node-b/drain", `{}`, http.StatusNotFound, ""},
		{"node-a/drain", ` null `, http.StatusBadRequest, ""},
		{"node-a/quarantine", `null`, http.StatusBadRequest, ""},
		{"node-a/release", `null`, http.StatusBadRequest, ""},
		{"node-a/drain", `{"undoo": true}`, http.StatusBadRequest, "undoo"},
		{"node-a/drain", `{"undo": "x"}`, http.StatusBadRequest, "undo"},
		{"node-a/quarantine", `{}`, http.StatusUnprocessableEntity, "for"},
		{"node-a/quarantine", `{"for": "soon"}`, http.StatusBadRequest, "for"},
		{"node-a/quarantine", `{"for": "10m", "slot": 9}`, http.StatusNotFound, "slot"},
		{"node-a/release", `[`, http.StatusBadRequest, ""},
	} {
		a := w.do("POST", "/api/v1/nodes/"+c.path, c.body, "Content-Type: application/json")
		p := a.problem(t)
		if a.status != c.status || (c.about != "" && !strings.Contains(string(a.body), c.about)) {
			t.Errorf("%s %s: %d %+v, want %d about %q", c.path, c.body, a.status, p, c.status, c.about)
		}
	}
	if a := w.do("POST", "/api/v1/nodes/node-a/drain", `{}`, "Content-Type: text/plain"); a.status != http.StatusUnsupportedMediaType {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestWhatIsUsed: what agents and workers have said of now is on the pages of nodes and workers, of
// the incarnations that are known.
func TestWhatIsUsed(t *testing.T) {
	w := start(t)
	w.node("node-a")
	v := fullJob(t)
	v.State, v.Ended = events.JobStateRunning, time.Time{}
	w.put(events.BucketJobs, string(v.Job), v)
	place, share := v.Workers[0].Place, 0.25
	say := func(subject string, body interface{ Type() events.Type }) {
		t.Helper()
		b, err := bodies.Encode(body)
		if err == nil {
			err = w.ports.Signals.Send(subject, b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	said := usage.Node{
		Node: "node-a", Incarnation: "01JD0000000000000000000000", Machine: usage.Of{Processors: 1.5, Memory: 3 << 30}, Processors: 4, Memory: 8 << 30,
		Workers: []usage.Worker{{Job: v.Job, Place: place, PID: 7, Of: usage.Of{Processors: 0.5, Memory: 1 << 20}}},
	}
	step := uint64(100)
	var now gateway.WorkerNow
	w.eventually("the worker's pace is known", func() bool {
		say(usage.Subject("node-a"), said)
		say(events.ProgressSubject(v.Job), events.Progress{Job: v.Job, Place: place, Generation: v.Generation, World: 1, Step: step, Waited: &share})
		step++
		var list gateway.WorkerList
		if w.get("/api/v1/jobs/"+string(v.Job)+"/workers").into(t, &list); len(list.Workers) != 2 {
			return false
		}
		now = list.Workers[0]
		return now.OwnSeconds != nil && now.Usage != nil
	})
	if *now.OwnSeconds != 0.75**now.StepSeconds || *now.Usage != said.Workers[0].Of || now.PID != 7 || now.Step <= 100 || time.Since(now.HeardAt) > time.Minute || now.UsageAt.IsZero() {
		t.Errorf("%+v", now)
	}
	var nodes gateway.NodeList
	w.get("/api/v1/nodes").into(t, &nodes)
	if u := nodes.Nodes[0].Usage; u == nil || u.ProcessorsUsed != 1.5 || u.Processors != 4 || u.MemoryUsed != 3<<30 || u.Memory != 8<<30 {
		t.Errorf("%+v", u)
	}
	said.Incarnation, said.Workers[0].PID = "01JD0000000000000000000009", 8
	w.eventually("what another agent and process say is not theirs", func() bool {
		say(usage.Subject("node-a"), said)
		var list gateway.WorkerList
		w.get("/api/v1/jobs/"+string(v.Job)+"/workers").into(t, &list)
		nodes = gateway.NodeList{}
		w.get("/api/v1/nodes").into(t, &nodes)
		return list.Workers[0].Usage == nil && nodes.Nodes[0].Usage == nil
	})
}

// TestMetrics are named as Prometheus wants them, and count what happened.
func TestMetrics(t *testing.T) {
	w := start(t)
	w.submit(job)
	w.publish(events.Event{ID: "i", Entity: "x-0001", Body: events.IncidentClosed{Job: "x-0001", Incident: 1, Cause: events.Cause{Kind: events.CauseWorkerFailed}, TotalMS: 26}})
	want := []string{
		`regroup_jobs{state="waiting"} 1`, `regroup_recoveries_total{cause="worker-failed"} 1`, `regroup_recovery_duration_seconds_bucket{phase="total",le="0.05"} 1`,
		`regroup_recovery_duration_seconds_bucket{phase="total",le="0.025"} 0`, `regroup_build_info{go=`, `regroup_connected 1`, `regroup_events_published_total{type="dev.regroup.job.submitted.v1"} 1`, `regroup_queue_depth 1`,
	}
	var text string
	w.eventually("the metrics", func() bool {
		text = string(w.get("/metrics").body)
		for _, m := range want {
			if !strings.Contains(text, m) {
				return false
			}
		}
		return true
	})
	problems, err := promlint.New(strings.NewReader(text + "\n")).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", err, problems)
	}
}

// TestTheSystemShowsTheBrokers, the streams and what the services have to handle, and Prometheus
// reads the same.
func TestTheSystemShowsTheBrokers(t *testing.T) {
	w := start(t)
	var s gateway.System
	w.eventually("every service has its consumers, and nothing to handle", func() bool {
		w.get("/api/v1/system").into(t, &s)
		idle := map[string]bool{}
		for _, b := range s.Brokers.Backlogs() {
			idle[b.Stream+" "+b.Consumer] = b.Unknown == "" && b.Backlog() == 0
		}
		for _, service := range events.Services() {
			for _, stream := range service.Consumes() {
				if !slices.ContainsFunc(service.Durables(), func(d string) bool { return idle[stream+" "+d] }) {
					return false
				}
			}
		}
		return true
	})
	if b := s.Brokers; len(b.Brokers) != 1 || b.Brokers[0].Broker != b.Connected || b.Brokers[0].Leads != len(events.Streams()) || len(b.Findings) != 0 || b.At.IsZero() {
		t.Errorf("%+v", b)
	}
	text := string(w.get("/metrics").body)
	for _, want := range []string{
		`regroup_stream_replica_current{broker="memory",stream="REGROUP_EVT"} 1`, `regroup_stream_replica_lag_messages{broker="memory",stream="REGROUP_EVT"} 0`, `regroup_stream_bytes{stream="KV_jobs"} 0`,
		`regroup_consumer_pending{consumer="registry-evt",stream="REGROUP_EVT"} 0`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

// offline says of each stream that a second broker is gone.
type offline struct{ broker.Brokers }

// Streams implements broker.Brokers.
func (o offline) Streams(ctx context.Context) []broker.StreamState {
	all := o.Brokers.Streams(ctx)
	for i := range all {
		all[i].Replicas = append(all[i].Replicas, broker.ReplicaState{Broker: "n2", Offline: true, Lag: 9})
	}
	return all
}

// TestABrokerThatIsGoneNeedsAttention on the overview.
func TestABrokerThatIsGoneNeedsAttention(t *testing.T) {
	w := bare(t, func(o *gateway.Options) { o.Ports.Brokers = offline{o.Ports.Brokers} })
	want := fmt.Sprintf("broker n2 is offline: its copies of streams (%d) are not kept up", len(events.Streams()))
	w.eventually("it is on the overview", func() bool {
		var o gateway.Overview
		w.get("/api/v1/overview").into(t, &o)
		return slices.ContainsFunc(o.Attention, func(a gateway.Attention) bool {
			return a.Severity == "warning" && strings.HasPrefix(a.Text, want) && !a.Since.IsZero()
		})
	})
}

// TestWithoutServices a command is not reported as done, and the pages say who is missing.
func TestWithoutServices(t *testing.T) {
	w := bare(t, func(o *gateway.Options) { o.AnswerWithin = 200 * time.Millisecond })
	w.job("j-0001")
	a := w.do("POST", "/api/v1/jobs/j-0001/stop", `{}`)
	if a.status != http.StatusServiceUnavailable || a.problem(t).Code != errcode.Unavailable || !strings.Contains(string(a.body), "expired") {
		t.Errorf("%d %s", a.status, a.body)
	}
	all := w.commands()
	if len(all) != 1 || all[0].Expires.IsZero() || time.Until(all[0].Expires) > time.Second {
		t.Errorf("%+v, want a command that has expired", all)
	}
	var o gateway.Overview
	if w.get("/api/v1/overview").into(t, &o); len(o.Attention) != 4 || !strings.Contains(o.Attention[0].Text, "regroup serve") {
		t.Errorf("%+v", o.Attention)
	}
	var s gateway.System
	if w.get("/api/v1/system").into(t, &s); len(s.Services) != 4 || s.Services[0].Answers || s.Ready != "ok" {
		t.Errorf("%+v", s)
	}
}
