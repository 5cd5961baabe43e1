package job

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/regroup-io/regroup/cmd/regroup/internal/commandtest"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/internal/golden"
	"github.com/regroup-io/regroup/services/cluster/clustertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mnist = ident.JobID("mnist-7f3a")

var began = clustertest.Now.Add(-62 * time.Second)

func place(node string, slot int) ident.Place {
	return ident.Place{Node: ident.NodeID(node), Slot: ident.Slot(slot)}
}

func fault() events.Cause {
	p := place("node-c", 0)
	return events.Cause{Kind: events.CauseWorkerFailed, Place: &p, Node: "node-c", Rank: 1, Detail: "killed by signal 9 (SIGKILL)"}
}

// running is a job that has lost a worker and waits for its replacement.
func running() events.JobView {
	ref := func(node string, attempt, pid int, g ident.Generation) tables.WorkerRef {
		return tables.WorkerRef{Job: mnist, Place: place(node, 0), Incarnation: ident.Incarnation("01" + node), Attempt: attempt, Generation: g, PID: pid}
	}
	members := []tables.Member{{Place: place("node-a", 0), Attempt: 1, PID: 4121}, {Place: place("node-c", 0), Rank: 1, Attempt: 1, PID: 1180}}
	limit, b := 20, place("node-c", 0)
	return events.JobView{
		Failures: []time.Time{began.Add(-2 * time.Hour), began.Add(20 * time.Second), began.Add(30 * time.Second)},
		CountedFailures: []events.CountedFailure{
			{At: began.Add(20 * time.Second), Place: &b, Generation: 1, Rank: 1, Step: 4000, Kind: events.FailureCrash, Detail: "exit code 1", Poison: true},
			{At: began.Add(30 * time.Second), Place: &b, Generation: 2, Rank: 1, Step: 4612, Kind: events.FailureOOM, Detail: "killed by the kernel for lack of memory", Poison: true},
		},
		Job: mnist, State: events.JobStateRunning, By: "/regroup/cli/ada@host", Submitted: began, Generation: 2, Step: 4612,
		Ledger: tables.Ledger{Samples: 2, Epochs: []tables.LedgerEpoch{
			{Epoch: 0, Count: 2, Sum: tables.SampleHash(0) + tables.SampleHash(1), Done: true}, {Epoch: 1, Count: 1, Sum: tables.SampleHash(1)},
		}},
		Spec: spec.Job{
			Name: "mnist", Command: []string{"python", "train.py"}, Workers: spec.Workers{Min: 1, Max: 2}, Recovery: spec.RecoveryInProcess,
			Failures: spec.Failures{Max: &limit, Per: spec.Duration(time.Hour), SameStep: 3},
		},
		Workers: []tables.WorkerView{
			{WorkerRef: ref("node-c", 2, 1200, 0), Rank: -1, State: tables.WorkerStateStarting, Detail: "warms up"},
			{WorkerRef: ref("node-a", 1, 4121, 2), Rank: 0, State: tables.WorkerStateReady},
		},
		Generations: []events.GenerationView{
			{Generation: 1, World: 2, Sealed: began.Add(time.Second), Ready: true, Cause: events.Cause{Kind: events.CauseStart}, Members: members},
			{Generation: 2, World: 1, Sealed: began.Add(30 * time.Second), Ready: true, Reported: events.Reported{Ready: 1}, Cause: fault(), Members: members[:1]},
		},
		Incidents: []events.IncidentClosed{{
			Job: mnist, Incident: 1, From: 1, To: 2, Cause: fault(), TotalMS: 41,
			Phases: events.Phases{Notice: 4, Abort: 2, Judge: 6, Regroup: 11, FirstStep: 18}, StepsLost: new(uint64(1)), TraceID: tracing.TraceID(tracing.IncidentTrace(mnist, 1)),
		}},
		OpenIncident: &events.IncidentOpened{Job: mnist, Incident: 2, From: 2, Cause: events.Cause{Kind: events.CauseGrow, Rank: -1}, Trace: tracing.IncidentTrace(mnist, 2)},
	}
}

func failed() events.JobView {
	return events.JobView{
		Job: "bert-0c21", State: events.JobStateFailed, Code: errcode.Exhausted, Reason: "1 failure within 1h0m0s, 0 are allowed", By: "/regroup/cli/bob@host",
		Submitted: began.Add(-time.Hour), Ended: began, Generation: 1,
		Generations: []events.GenerationView{{Generation: 1, World: 4, Cause: events.Cause{Kind: events.CauseStart, Rank: -1}, Sealed: began.Add(-time.Minute), Reported: events.Reported{Failure: 1}}},
		Spec:        spec.Job{Name: "bert", Command: []string{"./bert"}, Workers: spec.Workers{Min: 4, Max: 4}},
		FirstError: &tables.WorkerView{
			Rank: 3, Detail: "exit 1", Lines: []string{"ValueError: no"},
			WorkerRef: tables.WorkerRef{Place: place("node-a", 3), Attempt: 1, Generation: 1, PID: 9},
		},
	}
}

func world(t *testing.T) commandtest.World {
	w := commandtest.New(t)
	w.Job(running())
	w.Job(failed())
	w.Job(events.JobView{
		Job: "gpt-0c22", State: events.JobStateWaiting, Reason: "needs 8 slots, 3 are free", Submitted: clustertest.Now.Add(-12 * time.Second),
		Spec: spec.Job{Name: "gpt", Workers: spec.Workers{Min: 8, Max: 16}},
	})
	places := []ident.Place{place("node-a", 0), place("node-c", 0)}
	w.Put(events.BucketPlacements, events.PoolKey, events.PoolView{Jobs: map[ident.JobID]events.PlacementView{
		mnist: {Places: places}, "gpt-0c22": {Waiting: "needs 8 slots, 3 free of 6 on 2 nodes"},
	}})
	w.Put(events.BucketRounds, string(mnist), events.RoundView{
		Job: mnist, State: events.RoundStateSealed, Generation: 2, Members: running().Generations[1].Members,
	})
	w.Answering(events.ProgressAnswer{Jobs: map[ident.JobID]events.JobProgress{
		mnist: {Generation: 2, Step: 4650, At: clustertest.Now.Add(-300 * time.Millisecond), Reported: map[string]events.Metric{
			"loss":             {Value: 0.3125, Step: 4650, At: clustertest.Now.Add(-300 * time.Millisecond)},
			"accuracy\x1b[31m": {Value: 0.912345678, Step: 4600, At: clustertest.Now.Add(-14 * time.Second)}, "lr": {Value: 1e-300, Step: 4650},
		}, Redundancy: &events.Redundancy{
			Generation: 2, ReportedAt: clustertest.Now.Add(-300 * time.Millisecond), Commit: tables.Commit{Generation: 2, Step: 4640},
			CommittedAt: clustertest.Now.Add(-2400 * time.Millisecond), Checkpoint: &tables.Commit{Generation: 1, Step: 4000}, CheckpointAt: clustertest.Now.Add(-4 * time.Minute),
		}},
	}}, events.ServiceNames()...)
	w.Put(events.BucketJobs, "ghost-0001", events.JobView{Job: "ghost-0001"}) // a stop that waits for its submit
	return w
}

func run(t *testing.T, w commandtest.World, args ...string) commandtest.Output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return w.Run(ctx, "", Commands, args...)
}

func TestReading(t *testing.T) {
	w := world(t)
	publish(w)
	w.Print(mnist, place("node-a", 0), "epoch 0\nloss 0.4\n")
	w.Print(mnist, place("node-c", 0), "DEBUG x\n")
	record(t, w)
	for file, args := range map[string][]string{
		"ls.txt":             {"ls"},
		"ls_wide.txt":        {"ps", "-o", "wide"},
		"ls_name.txt":        {"jobs", "-r", "-o", "name"},
		"status.txt":         {"status", "mnist"},
		"status_wide.txt":    {"status", "mnist-7f3a", "-o", "wide"},
		"status_failed.txt":  {"status", "bert"},
		"status.json":        {"status", "mnist", "-o", "json"},
		"status_failed.json": {"status", "bert", "-o", "json"},
		"status_summary.txt": {"status", "mnist", "-o", "summary"},
		"explain.txt":        {"explain", "mnist"},
		"explain.json":       {"explain", "gpt", "-o", "json"},
		"events.txt":         {"events", "mnist"},
		"events_some.txt":    {"events", "mnist", "--type", "incident.*", "--type", "round.sealed", "--since", "87600h"},
		"events_none.txt":    {"events", "mnist", "--since", "1ns"},
		"events.json":        {"events", "mnist", "-o", "json"},
		"events_all.txt":     {"events", "--all"},
		"timeline.txt":       {"timeline", "mnist", "--ascii"},
		"timeline.svg":       {"timeline", "mnist", "-o", "svg"},
		"perfetto.json":      {"timeline", "mnist", "-o", "perfetto"},
		"trace.txt":          {"trace", "mnist"},
		"trace.json":         {"trace", "mnist", "--incident", "1", "-o", "json"},
		"colour.txt":         {"ls", "--color", "always"},
	} {
		t.Run(file, func(t *testing.T) {
			o := run(t, w, args...)
			if o.Exit != 0 || o.Err != "" {
				t.Errorf("exit %d, stderr %q", o.Exit, o.Err)
			}
			golden.Compare(t, "testdata/"+file, o.Out)
		})
	}
}

// TestAJobThatNeverTrained has ended without a generation, and nothing looks as if workers were
// missing.
func TestAJobThatNeverTrained(t *testing.T) {
	w := commandtest.New(t)
	v := failed()
	v.Generation, v.Generations, v.FirstError = 0, nil, nil
	w.Job(v)
	if o := run(t, w, "status", "bert"); !strings.Contains(o.Out, "  generation 0  no world (4–4)  ") {
		t.Errorf("status: %s", o.Out)
	}
	if o := run(t, w, "ls"); !strings.Contains(o.Out, "  -/4      -    -  ") {
		t.Errorf("ls: %s", o.Out)
	}
}

func TestStatusNamesTheSlowestRank(t *testing.T) {
	w, v := commandtest.New(t), running()
	v.Slowest = &events.Straggler{Rank: 0, Share: 0.416}
	w.Job(v)
	o := run(t, w, "status", "mnist")
	if want := "slowest: r0 on node-a/0, the others wait for it 42 % of the time\n"; !strings.Contains(o.Out, want) {
		t.Errorf("%s, want %s", o.Out, want)
	}
}

// TestStatusSaysWhatItDoesNotKnow: an old record, and a service that does not answer.
func TestStatusSaysWhatItDoesNotKnow(t *testing.T) {
	w, v := commandtest.New(t), running()
	w.Job(v)
	if o := run(t, w, "status", "mnist"); !strings.Contains(o.Out, "newest whole commit: unknown, none was reported\n") {
		t.Errorf("of a record without it: %s", o.Out)
	}
	if o := run(t, w, "status", "mnist", "-o", "json"); !strings.Contains(o.Out, "\n  \"redundancy\": null\n") {
		t.Errorf("of a record without it: %s", o.Out)
	}
	v.Redundancy = &events.Redundancy{
		Generation: 1, ReportedAt: clustertest.Now.Add(-10 * time.Minute), Commit: tables.Commit{Generation: 1, Step: 4500},
		CommittedAt: clustertest.Now.Add(-11 * time.Minute), Losses: 1, NodeLosses: 1,
	}
	w.Job(v)
	want := "newest whole commit: step 4500, 11m00s old; what it survives is unknown until the workers report again; reported 10m00s ago\n"
	if o := run(t, w, "status", "mnist"); !strings.Contains(o.Out, want) {
		t.Errorf("of the generation before: %s, want %s", o.Out, want)
	}
	o := run(t, w, "status", "mnist", "-o", "json")
	if !strings.Contains(o.Out, `"losses": null`) || !strings.Contains(o.Out, `"node_losses": null`) {
		t.Errorf("of the generation before: %s", o.Out)
	}
}

// publish stores the facts of a start and a failure, and one of a node.
func publish(w commandtest.World) {
	say := func(after time.Duration, number uint64, b events.Body) {
		w.Publish(events.Event{Entity: string(mnist), Time: began.Add(after), Number: number, Body: b})
	}
	ref := tables.WorkerRef{Job: mnist, Place: place("node-a", 0), Attempt: 1, PID: 4121}
	say(0, 1, events.JobSubmitted{Job: mnist, By: "/regroup/cli/ada@host", Spec: running().Spec})
	say(500*time.Millisecond, 0, events.WorkerStarted{WorkerRef: ref})
	sealed := events.RoundSealed{Job: mnist, Generation: 1, Members: running().Generations[0].Members, Cause: events.Cause{Kind: events.CauseStart, Rank: -1}}
	say(time.Second, 1, sealed)
	say(time.Second, 1, sealed) // published twice
	say(2*time.Second, 0, events.WorkerReady{WorkerRef: ref, Step: 1})
	ref.Place, ref.PID, ref.Generation = place("node-c", 0), 1180, 1
	say(30*time.Second, 0, events.WorkerExited{WorkerRef: ref, ExitCode: -1, Signal: "SIGKILL", Detail: "killed by signal 9 (SIGKILL)"})
	w.Publish(events.Event{
		Entity: "node-b", Source: "/regroup/discovery", Number: 1, Time: began.Add(40 * time.Second),
		Body: events.NodeLost{NodeFact: events.NodeFact{Node: "node-b", Slots: 4, Reason: "silent for 2.1s"}},
	})
}

// record stores two spans of the first incident, one of the start, and a malformed message.
func record(t *testing.T, w commandtest.World) {
	span := func(traceparent, name string, from, to time.Duration, parent []byte) *tracepb.Span {
		raw := make([]byte, 16)
		for i := range raw {
			raw[i] = unhex(traceparent[3+2*i])<<4 | unhex(traceparent[4+2*i])
		}
		return &tracepb.Span{
			TraceId: raw, SpanId: []byte(name)[:8], ParentSpanId: parent, Name: name,
			StartTimeUnixNano: uint64(began.Add(from).UnixNano()), EndTimeUnixNano: uint64(began.Add(to).UnixNano()),
		}
	}
	incident, start := tracing.IncidentTrace(mnist, 1), tracing.JobTrace(mnist)
	b, err := proto.Marshal(&collector.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: &resource.Resource{Attributes: []*common.KeyValue{{Key: "service.name", Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: "registry"}}}}},
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{
			span(incident, "incident worker-failed", 0, 41*time.Millisecond, nil),
			span(incident, "worker.exited", 0, 4*time.Millisecond, []byte("incident")),
			span(start, "start of the job", 0, time.Second, nil),
			span(tracing.IncidentTrace("other-0001", 1), "of another job", 0, time.Second, nil),
		}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Ports.Log.Publish(t.Context(), broker.Message{Subject: events.SpanSubject("registry"), Data: b}); err != nil {
		t.Fatal(err)
	}
}

func unhex(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}

func TestUnreadableSpansAreCounted(t *testing.T) {
	w := world(t)
	if _, err := w.Ports.Log.Publish(t.Context(), broker.Message{Subject: events.SpanSubject("x"), Data: []byte("no protobuf")}); err != nil {
		t.Fatal(err)
	}
	if o := run(t, w, "trace", "mnist"); o.Exit != 0 || !strings.Contains(o.Err, "1 stored message could not be read") {
		t.Errorf("exit %d, stderr %q", o.Exit, o.Err)
	}
}

func TestRefusals(t *testing.T) {
	w := world(t)
	var b strings.Builder
	for _, c := range []struct {
		exit int
		args []string
	}{
		{3, []string{"status", "mnsit-7f3a"}},
		{3, []string{"logs", "nothing-like-it"}},
		{2, []string{"stop"}},
		{2, []string{"stop", "a", "b"}},
		{2, []string{"status", "a", "b"}},
		{2, []string{"ls", "--outptu", "json"}},
		{2, []string{"ls", "-o", "jsno"}},
		{2, []string{"ls", "--color", "sometimes"}},
		{2, []string{"statsu", "mnist"}},
		{2, []string{"logs", "mnist", "--rank", "3-1"}},
		{2, []string{"logs", "mnist", "-i", "("}},
		{2, []string{"events", "mnist", "--all"}},
		{2, []string{"events", "mnist", "--type", "worker.exitd", "--type", "alert.*", "--since", "-5m"}},
		{2, []string{"status", "mnist", "--watch"}},
		{3, []string{"status", "mnits"}},
		{2, []string{"logs", "mnist", "--follow=maybe", "--tail", "1"}},
		{0, []string{"logs", "mnist", "--node", "nowhere"}},
		{2, []string{"wait", "mnist", "--for", "finished"}},
		{2, []string{"scale", "mnist", "many"}},
		{3, []string{"trace", "mnist", "--incident", "9"}},
	} {
		o := run(t, w, c.args...)
		if o.Exit != c.exit {
			t.Errorf("%q: exit %d, want %d", c.args, o.Exit, c.exit)
		}
		if o.Out != "" {
			t.Errorf("%q: talk on stdout: %q", c.args, o.Out)
		}
		b.WriteString("$ regroup " + strings.Join(c.args, " ") + "\n" + o.Err)
	}
	golden.Compare(t, "testdata/refusals.txt", b.String())
}

// TestStopWithoutSubmitIsNoJob checks that a document without a view does not count for prefixes.
func TestStopWithoutSubmitIsNoJob(t *testing.T) {
	w := world(t)
	if o := run(t, w, "status", "g"); o.Exit != 0 || !strings.HasPrefix(o.Out, "gpt-0c22") {
		t.Errorf("%+v", o)
	}
	if o := run(t, w, "status", "ghost-0001"); o.Exit != 3 {
		t.Errorf("%+v", o)
	}
}

func TestOutputForPrograms(t *testing.T) {
	w := world(t)
	var all []events.JobView
	if err := json.Unmarshal([]byte(run(t, w, "ls", "-o", "json").Out), &all); err != nil || len(all) != 3 {
		t.Errorf("ls -o json: %v, %d jobs, want 3", err, len(all))
	}
	if o := run(t, w, "status", "mnist", "-o", "yaml"); !strings.Contains(o.Out, "\nstate: running\n") {
		t.Errorf("status -o yaml: %s", o.Out)
	}
	empty := commandtest.New(t)
	if o := run(t, empty, "ls", "-o", "json"); o.Out != "[]\n" {
		t.Errorf("no jobs in JSON: %q, want []", o.Out)
	}
	if o := run(t, empty, "ls"); o.Out != "" || o.Err == "" || o.Exit != 0 {
		t.Errorf("no jobs: %+v", o)
	}
}
