package local

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/e2e/pytorch"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/figures"
)

// withCards has nvidia-smi list GPUs with faults, see agent/preflight/testdata/cards.py.
func withCards(t *testing.T, ids ...string) (env []string) {
	t.Helper()
	tools := t.TempDir()
	script := "#!/bin/sh\nfor i in " + strings.Join(ids, " ") + "; do echo \"$i, NVIDIA H100 80GB HBM3, 81559, Disabled\"; done\n"
	if err := os.WriteFile(filepath.Join(tools, "nvidia-smi"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	cards, err := filepath.Abs("../../agent/preflight/testdata/cards.py")
	if err != nil {
		t.Fatal(err)
	}
	return []string{"PATH=" + tools + ":" + os.Getenv("PATH"), "TEST_GPU_DEVICE=" + cards}
}

// TestAGPUThatFailsItsPreflightGetsNoWork: of six GPUs one computes wrong results and one is slow:
// their slots are in quarantine when the node is first seen.
func TestAGPUThatFailsItsPreflightGetsNoWork(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.env = withCards(t, "GPU-a", "GPU-b", "GPU-c", "GPU-d", "GPU-slow", "GPU-wrong")
	c.services(1)
	c.agent("node-a", 0, "--preflight", "--preflight-python", pytorch.Python(t))
	c.nodes(8*time.Minute, "node-a")
	v := c.node("node-a")
	if len(v.QuarantinedSlots) != 2 || v.QuarantinedSlots[0].Slot != 4 || v.QuarantinedSlots[1].Slot != 5 || v.SchedulableSlots() != 4 || v.Preflight == nil || len(v.Preflight.GPUs) != 6 {
		t.Fatalf("%+v", v)
	}
	for i, want := range []string{"slow: matrix product 412 TFLOP/s (median of 4 others 650)", "wrong results: 1 of 65536 elements"} {
		if q := v.QuarantinedSlots[i]; !strings.HasPrefix(q.Reason, want) || !q.Measured {
			t.Errorf("slot %d: %q, want %q", q.Slot, q.Reason, want)
		}
	}
	if out, errs, code := c.cli("node", "ls", "-o", "wide"); code != 0 || !strings.Contains(out, "6 x NVIDIA H100 80GB HBM3, 412 to 650 TFLOP/s, 1 failed") {
		t.Errorf("node ls exits %d: %s%s", code, out, errs)
	}
	out, errs, code := c.cli("node", "ls", "-o", "json")
	var all []events.NodeView
	if err := json.Unmarshal([]byte(out), &all); err != nil || code != 0 || len(all) != 1 || all[0].Preflight.GPUs[0].MemoryCopyGB != 3000 {
		t.Errorf("exit %d, %v: %s%s", code, err, out, errs)
	}
}

// TestANodeThatCannotMeasureIsUsed, and says why it has not.
func TestANodeThatCannotMeasureIsUsed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.env = withCards(t, "GPU-a", "GPU-b")
	c.services(1)
	c.agent("node-a", 0, "--preflight", "--preflight-python", "/nonexistent/python")
	c.nodes(patience, "node-a")
	if v := c.node("node-a"); v.SchedulableSlots() != 2 || v.Preflight == nil || !strings.Contains(v.Preflight.Problem, "/nonexistent/python cannot be run") {
		t.Errorf("%+v", v)
	}
}

// TestDoctorMeasuresGPUs, names one that hangs and one that is slow, and ends.
func TestDoctorMeasuresGPUs(t *testing.T) {
	t.Parallel()
	c := empty(t)
	c.env = withCards(t, "GPU-a", "GPU-b", "GPU-c", "GPU-slow", "GPU-hang")
	out, errs, code := c.cli("doctor", "--gpu", "--python", pytorch.Python(t), "-o", "json")
	var all []struct {
		diagnosis
		GPU *figures.GPU
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil || code != 1 {
		t.Fatalf("exit %d, %v: %s%s", code, err, out, errs)
	}
	found := map[string]string{}
	for _, d := range all {
		if d.GPU != nil {
			found[d.GPU.ID] = d.State + " " + d.Found
		}
	}
	for id, want := range map[string]string{"GPU-a": "ok ", "GPU-slow": "note NVIDIA H100 80GB HBM3, GPU-slow: slow in matrix product; matrix product 412 TFLOP/s (median of 3 others 650)", "GPU-hang": "problem NVIDIA H100 80GB HBM3, GPU-hang: hangs: matmul"} {
		if !strings.HasPrefix(found[id], want) {
			t.Errorf("%s: %q, want %q", id, found[id], want)
		}
	}
}
