package job

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/golden"
	"github.com/regroup-io/regroup/services/cluster/clustertest"
	"github.com/regroup-io/regroup/services/cluster/view"
	"github.com/regroup-io/regroup/services/gateway/brokers"
)

// streams is what the brokers say in a test.
type streams []broker.StreamState

// Connected implements broker.Brokers.
func (streams) Connected() string { return "n0" }

// Streams implements broker.Brokers.
func (s streams) Streams(context.Context) []broker.StreamState { return s }

func TestTop(t *testing.T) {
	w := world(t)
	seen := 240.0
	w.Ports.Brokers = streams{{
		Stream: events.StreamFacts, Leader: "n0", Messages: 120, Bytes: 45000, MaxBytes: 1 << 30,
		Replicas:  []broker.ReplicaState{{Broker: "n0", Leader: true, Current: true}, {Broker: "n1", Current: true, SeenMS: &seen}, {Broker: "n2", Offline: true, Lag: 31}},
		Consumers: []broker.ConsumerState{{Consumer: "registry-evt", Service: "registry", Pending: 3, AckPending: 1}},
	}}
	w.Put(events.BucketNodes, "node-a", events.NodeView{Node: "node-a", State: events.NodeStateReady, Slots: 2, Since: began})
	for file, args := range map[string][]string{"top.txt": {"top"}, "top.json": {"top", "-o", "json"}} {
		t.Run(file, func(t *testing.T) {
			o := run(t, w, args...)
			if o.Exit != 0 || o.Err != "" {
				t.Errorf("exit %d, stderr %q", o.Exit, o.Err)
			}
			golden.Compare(t, "testdata/"+file, o.Out)
		})
	}
	if o := run(t, w, "top", "--every", "0s"); o.Exit == 0 {
		t.Error("frames without a pause are accepted")
	}
}

// TestRates: a rate is that of the newest two steps, and unknown after a job went back.
func TestRates(t *testing.T) {
	before, rates := map[ident.JobID]progress{}, map[ident.JobID]float64{}
	for _, frame := range []struct {
		step  uint64
		after time.Duration
		want  float64 // 0 = unknown
	}{{100, 0, 0}, {150, 2 * time.Second, 25}, {150, 2 * time.Second, 25}, {130, 3 * time.Second, 0}, {140, 4 * time.Second, 10}} {
		v := events.JobView{Job: mnist, Step: frame.step, StepAt: clustertest.Now.Add(frame.after)}
		measure(overview{Jobs: view.Jobs([]events.JobView{v})}, before, rates)
		if got := rates[mnist]; got != frame.want {
			t.Errorf("at step %d: %v steps/s, want %v", frame.step, got, frame.want)
		}
	}
}

// TestTopBrokers draws a cluster with a broker that is gone, one that is silent, and a consumer of
// which nothing is known.
func TestTopBrokers(t *testing.T) {
	seen := 12_400.0
	r := brokers.Report{
		Brokers: []brokers.Broker{
			{Broker: "n0", State: brokers.StateCurrent, Leads: 2, Copies: 2, SeenMS: new(float64)},
			{Broker: "n1", State: brokers.StateSilent, Copies: 2, NotCurrent: 1, Lag: 12, LagOf: events.StreamFacts, SeenMS: &seen},
			{Broker: "n2", State: brokers.StateOffline, Copies: 2, NotCurrent: 2, Offline: true, Lag: 4711, LagOf: events.StreamFacts},
		},
		Streams: []broker.StreamState{{Stream: events.StreamFacts, Consumers: []broker.ConsumerState{
			{Consumer: "scheduler", Service: "scheduler", Unknown: "it may not"}, {Consumer: "registry-evt", Service: "registry", Pending: 200, AckPending: 34, Redelivered: 5},
		}}},
		Findings: []brokers.Finding{{Severity: "warning", Text: "broker n2 is offline"}},
	}
	var out bytes.Buffer
	if err := drawBrokers(screen.Palette{}, &out, r); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/top-brokers.txt", out.String())
}
