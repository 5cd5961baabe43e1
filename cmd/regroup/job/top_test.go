package job

import (
	"context"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/internal/golden"
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
