package top

import (
	"bytes"
	"testing"
	"time"

	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/golden"
	"github.com/regroup-io/regroup/services/cluster/view"
	"github.com/regroup-io/regroup/services/gateway/brokers"
)

// TestRates: a rate is that of the newest two steps, and unknown after a job went back.
func TestRates(t *testing.T) {
	const id = ident.JobID("mnist-7f3a")
	before, rates := map[ident.JobID]progress{}, map[ident.JobID]float64{}
	for _, frame := range []struct {
		step  uint64
		after time.Duration
		want  float64 // 0 = unknown
	}{{100, 0, 0}, {150, 2 * time.Second, 25}, {150, 2 * time.Second, 25}, {130, 3 * time.Second, 0}, {140, 4 * time.Second, 10}} {
		v := events.JobView{Job: id, Step: frame.step, StepAt: noon.Add(frame.after)}
		measure(Overview{Jobs: view.Jobs([]events.JobView{v})}, before, rates)
		if got := rates[id]; got != frame.want {
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
	golden.Compare(t, "testdata/brokers.txt", out.String())
}
