package rendezvous

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/controller/controllertest"
	"github.com/regroup-io/regroup/services/rendezvous/round"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const job = ident.JobID("demo-0001")

// rounds is one job, stepped by hand.
type rounds struct {
	s   round.State
	now time.Time
}

func (r *rounds) step(number uint64, b events.Body) events.Decision {
	var d events.Decision
	r.s, d = round.Machine{}.Step(r.s, events.Input{Number: number, Nonce: "n", Body: b}, r.now)
	return d
}

func (r *rounds) route(in events.Input) []string {
	return route(in, func() []string { return []string{string(job)} }, func(j string) (round.State, bool) { return r.s, j == string(job) })
}

func placed() *rounds {
	r := &rounds{s: round.Machine{}.New(string(job)), now: time.Unix(1000, 0)}
	jobSpec := spec.Job{Name: "demo", Command: []string{"x"}, Recovery: spec.RecoveryInProcess}.WithDefaults()
	r.step(1, events.PlacementSet{
		Job: job, Spec: jobSpec, Workers: spec.Workers{Min: 1, Max: 2}, Places: []ident.Place{{Node: "node-a"}, {Node: "node-b"}},
	})
	return r
}

func TestSteadyHeartbeatReachesNoJob(t *testing.T) {
	r := placed()
	after := func(d time.Duration, n ident.NodeID, held map[ident.JobID]uint64) bool {
		return len(r.route(events.Input{Time: r.now.Add(d), Body: events.Heartbeat{Node: n, Revisions: held}})) > 0
	}
	beat := func(n ident.NodeID, held map[ident.JobID]uint64) bool { return after(2*time.Second, n, held) }
	published := r.s.Published["node-a"].Revision
	if published == 0 {
		t.Fatal("node-a has no launch")
	}
	check := func(when string, held map[ident.JobID]uint64, want bool) {
		t.Helper()
		if got := beat("node-a", held); got != want {
			t.Errorf("%s: a heartbeat with %v reaches the job: %t, want %t", when, held, got, want)
		}
	}
	check("placed", map[ident.JobID]uint64{job: published}, false)
	check("placed", map[ident.JobID]uint64{job: published - 1}, true)
	check("placed", nil, true)
	if after(500*time.Millisecond, "node-a", nil) {
		t.Error("a heartbeat that may have been sent before the launch arrived reaches the job")
	}
	if beat("node-c", nil) {
		t.Error("the heartbeat of a node that has no part in the job reaches it")
	}
	r.step(2, events.JobSucceeded{JobEnd: events.JobEnd{Job: job, Reason: "done"}})
	stop := r.s.Published["node-a"].Revision
	if stop <= published || r.s.View.State != events.RoundStateClosed {
		t.Fatalf("the end was not published: %d after %d", stop, published)
	}
	check("closed", map[ident.JobID]uint64{job: stop}, false)
	check("closed", map[ident.JobID]uint64{job: published}, true)
	check("closed", nil, false)
	if got := r.route(events.Input{Body: events.JobSucceeded{JobEnd: events.JobEnd{Job: job}}}); len(got) > 0 {
		t.Errorf("the end of a job whose rendezvous is over reaches %v", got)
	}
}

func TestOldFactAboutANodeReachesNoJob(t *testing.T) {
	r := placed()
	node := events.NodeFact{Node: "node-a", Incarnation: "A"}
	r.step(6, events.NodeJoined{NodeFact: node})
	for number, want := range map[uint64]int{5: 0, 6: 0, 7: 1, 0: 1} {
		if got := r.route(events.Input{Number: number, Body: events.NodeLost{NodeFact: node}}); len(got) != want {
			t.Errorf("after fact 6, number %d reaches %v", number, got)
		}
	}
}

// TestReconcileCarriesTheNumberOfTheRecord: an input made from a record has a place in the order of
// facts.
func TestReconcileCarriesTheNumberOfTheRecord(t *testing.T) {
	p := memory.New().Ports()
	for i, s := range []events.NodeState{events.NodeStateReady, events.NodeStateLost, events.NodeStateLeft, events.NodeStateSuspected} {
		n := fmt.Sprintf("node-%d", i)
		controllertest.Record(t, p, events.BucketNodes, n, uint64(i+1), events.NodeView{Node: ident.NodeID(n), State: s})
	}
	for i, s := range []events.JobState{"", events.JobStateRunning, events.JobStateSucceeded, events.JobStateFailed, events.JobStateStopped} {
		j := fmt.Sprintf("demo-%d", i)
		controllertest.Record(t, p, events.BucketJobs, j, uint64(i+1), events.JobView{Job: ident.JobID(j), State: s})
	}
	var got []string
	if err := newRecords(p).reconcile(t.Context(), func(in events.Input) {
		got = append(got, fmt.Sprintf("%s.%s %d %q", in.Body.Type().Family(), in.Body.Type().Kind(), in.Number, in.ID))
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`job.succeeded 3 ""`, `job.failed 4 ""`, `job.stopped 5 ""`,
		`node.joined 1 ""`, `node.lost 2 ""`, `node.left 3 ""`, `node.joined 4 ""`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("emitted %q\nwant %q", got, want)
	}
}

// TestReturnOfALostNodeIsRouted: the node waited for others, so it has no launch and no member, and
// would otherwise be refused for ever.
func TestReturnOfALostNodeIsRouted(t *testing.T) {
	r := &rounds{s: round.Machine{}.New(string(job)), now: time.Unix(1000, 0)}
	jobSpec := spec.Job{
		Name: "demo", Command: []string{"x"}, Recovery: spec.RecoveryInProcess,
		Rendezvous: &spec.Rendezvous{Nodes: spec.NodeRange{Min: 2, Max: 2}, WorkersPerNode: 1},
	}.WithDefaults()
	r.step(1, events.JobSubmitted{Job: job, Spec: jobSpec})
	fact := events.NodeFact{Node: "node-a", Incarnation: "A"}
	enter := func() error {
		return r.step(0, events.NodeEnter{Job: job, Node: fact.Node, Incarnation: fact.Incarnation, Slots: 1, Spec: jobSpec}).Refusal
	}
	if err := enter(); err != nil {
		t.Fatal(err)
	}
	r.step(2, events.NodeLost{NodeFact: fact})
	if err := enter(); errcode.Of(err) != errcode.Unavailable {
		t.Fatalf("a lost node was answered %v", err)
	}
	back := events.Input{Number: 3, Body: events.NodeJoined{NodeFact: fact}}
	if got := r.route(back); len(got) != 1 {
		t.Fatalf("its return reaches %v", got)
	}
	r.step(back.Number, back.Body)
	if err := enter(); err != nil {
		t.Error(err)
	}
}

// TestUnchangedRecordReachesNoJob: the same holds for a suspicion that changes nothing, of which
// overloaded brokers cause thousands.
func TestUnchangedRecordReachesNoJob(t *testing.T) {
	r := placed()
	fact := events.NodeFact{Node: "node-a", Incarnation: "A"}
	check := func(when string, in events.Input, want bool) {
		t.Helper()
		if got := len(r.route(in)) > 0; got != want {
			t.Errorf("%s: %s %d %q reaches the job: %t, want %t", when, in.Body.Type(), in.Number, in.ID, got, want)
		}
	}
	record := events.Input{Number: 5, Body: events.NodeJoined{NodeFact: fact}}
	suspected := events.Input{ID: "x", Number: 6, Body: events.NodeSuspected{NodeFact: fact}}
	check("placed", record, false)
	check("placed", suspected, false)
	check("placed", events.Input{ID: "x", Number: 5, Body: record.Body}, true) // a fact is recorded
	cut := fact
	cut.Disconnected = true
	check("placed", events.Input{ID: "x", Number: 6, Body: events.NodeSuspected{NodeFact: cut}}, true)
	r.step(6, events.NodeSuspected{NodeFact: cut})
	check("cut off", events.Input{Number: 7, Body: record.Body}, true)
	r.step(7, events.NodeRecovered{NodeFact: fact})
	check("back", events.Input{Number: 7, Body: record.Body}, false)
	r.step(8, events.NodeLost{NodeFact: fact})
	check("lost", events.Input{Number: 8, Body: record.Body}, false)
	check("lost", events.Input{Number: 9, Body: record.Body}, true)
	r.step(9, events.NodeJoined{NodeFact: events.NodeFact{Node: "node-a", Incarnation: "B"}})
	check("a newer incarnation is known", events.Input{Number: 10, Body: record.Body}, true)
}
