package node

import (
	"testing"
	"time"

	"github.com/regroup-io/regroup/cmd/regroup/internal/commandtest"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/internal/golden"
	"github.com/regroup-io/regroup/services/cluster/clustertest"
)

func TestGPUs(t *testing.T) {
	w := commandtest.New(t)
	w.Answering(events.ProgressAnswer{}, events.ServiceDiscovery)
	if o := run(t, w, "gpus"); o.Exit != 0 || o.Out != "" || o.Err == "" {
		t.Errorf("no nodes: %+v", o)
	}
	at := clustertest.Now.Add(-7 * time.Second)
	all := devices.Reading{At: at, UsedMiB: new(1024), BusyPercent: new(87), Celsius: new(65), Corrected: new(uint64(3)), Uncorrected: new(uint64(0)), Xids: new(uint64(2)), LastXid: 31}
	fault := &devices.Fault{At: clustertest.Now.Add(-time.Hour), Reason: "Xid 79: GPU has fallen off the bus"}
	a, b := shown("node-a", events.NodeStateReady), shown("node-b", events.NodeStateReady)
	a.Slots = 3
	a.GPUs = []devices.GPU{
		{ID: "GPU-a", Model: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559, Reading: &all},
		{ID: "GPU-b", Model: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559, Fault: fault},
		{ID: "GPU-c", Model: "NVIDIA GB10", Reading: &devices.Reading{At: at, Celsius: new(41)}, Fault: fault},
	}
	a.QuarantinedSlots = []events.QuarantinedSlot{{Slot: 1, Quarantine: events.Quarantine{Since: at, Until: at.Add(time.Minute), Reason: fault.Reason, Count: 1, Device: true}}}
	b.GPUs = []devices.GPU{{ID: "0"}}
	for _, n := range []events.NodeView{a, b} {
		w.Put(events.BucketNodes, string(n.Node), n)
	}
	for file, args := range map[string][]string{
		"gpus.txt": {"gpus"}, "gpus_of_one.txt": {"gpus", "node-b"}, "gpus_name.txt": {"gpus", "-o", "name"}, "gpus.json": {"gpus", "-o", "json"},
	} {
		o := run(t, w, args...)
		if o.Exit != 0 || o.Err != "" {
			t.Errorf("%s: %+v", file, o)
		}
		golden.Compare(t, "testdata/"+file, o.Out)
	}
}
