package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/devices"
)

// TestMetricsOfGPUs: what is unknown has no series, and nodes that are gone have none at all.
func TestMetricsOfGPUs(t *testing.T) {
	w := bare(t, nil)
	full := &devices.Reading{At: time.Now(), UsedMiB: new(1024), BusyPercent: new(87), Celsius: new(65), Corrected: new(uint64(3)), Uncorrected: new(uint64(1)), Xids: new(uint64(2)), LastXid: 31}
	v := events.NodeView{Node: "node-a", Incarnation: "A", State: events.NodeStateReady, Slots: 2, GPUs: []devices.GPU{
		{ID: "GPU-a", Model: "H100", MemoryMiB: 81559, Reading: full}, {ID: "GPU-b", Model: "H100", Reading: &devices.Reading{At: time.Now(), Celsius: new(40)}},
	}, QuarantinedSlots: []events.QuarantinedSlot{{Slot: 1, Quarantine: events.Quarantine{Reason: "Xid 79", Device: true}}}}
	w.put(events.BucketNodes, "node-a", v)
	gone := v
	gone.Node, gone.State = "node-b", events.NodeStateLost
	w.put(events.BucketNodes, "node-b", gone)
	w.eventually("both nodes are there", func() bool {
		text := string(w.get("/metrics").body)
		return strings.Contains(text, `regroup_nodes{state="ready"} 1`) && strings.Contains(text, `regroup_nodes{state="lost"} 1`)
	})
	w.series("none") // promlint
	var got []string
	for line := range strings.Lines(string(w.get("/metrics").body)) {
		if strings.HasPrefix(line, "regroup_gpu_") && !strings.HasPrefix(line, "regroup_gpu_reading_age_seconds") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	labels := func(slot int, gpu string) string {
		return fmt.Sprintf(`{gpu="%s",model="H100",node="node-a",slot="%d"}`, gpu, slot)
	}
	a, b := labels(0, "GPU-a"), labels(1, "GPU-b")
	want := []string{
		"regroup_gpu_at_fault" + a + " 0", "regroup_gpu_at_fault" + b + " 1",
		"regroup_gpu_busy_ratio" + a + " 0.87",
		"regroup_gpu_driver_errors" + a + " 2",
		"regroup_gpu_memory_bytes" + a + " 8.5520809984e+10",
		"regroup_gpu_memory_errors_corrected" + a + " 3", "regroup_gpu_memory_errors_uncorrected" + a + " 1",
		"regroup_gpu_memory_used_bytes" + a + " 1.073741824e+09",
		"regroup_gpu_temperature_celsius" + a + " 65", "regroup_gpu_temperature_celsius" + b + " 40",
	}
	if g, x := strings.Join(got, "\n"), strings.Join(want, "\n"); g != x {
		t.Errorf("%s\nwant\n%s", g, x)
	}
}
