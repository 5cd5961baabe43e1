package local

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// TestEachJobHasTheGPUsOfItsSlots: a node has as many slots as GPUs if nobody says otherwise, shows
// them, and two jobs on it have two each. nvidia-smi is a script here.
func TestEachJobHasTheGPUsOfItsSlots(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	tools := t.TempDir()
	script := "#!/bin/sh\nfor i in a b c d; do echo \"GPU-$i, NVIDIA H100 80GB HBM3, 81559, Disabled\"; done\n"
	if err := os.WriteFile(filepath.Join(tools, "nvidia-smi"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	c.env = []string{"PATH=" + tools + ":" + os.Getenv("PATH")}
	c.services(1)
	c.agent("node-a", 0)
	c.nodes(time.Minute, "node-a")
	if v := c.node("node-a"); v.Slots != 4 || len(v.GPUs) != 4 || v.GPUs[3] != (events.GPU{ID: "GPU-d", Model: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559}) {
		t.Errorf("%d slots, GPUs %+v", v.Slots, v.GPUs)
	}
	if out, errs, code := c.cli("node", "ls", "-o", "wide"); code != 0 || !strings.Contains(out, "4 x NVIDIA H100 80GB HBM3") {
		t.Errorf("node ls exits %d: %s%s", code, out, errs)
	}
	end := filepath.Join(tools, "end")
	jobs, seen := make([]ident.JobID, 2), []string{}
	for i := range jobs {
		jobs[i] = c.submit("--workers", "2:2", "--", "sh", "-c", fmt.Sprintf(`echo "sees $LOCAL_RANK $CUDA_VISIBLE_DEVICES"; until test -e %s; do sleep 0.1; done`, end))
	}
	for _, job := range jobs {
		var lines []string
		eventually(t, time.Minute, func() (bool, string) {
			out, _, _ := c.cli("logs", string(job))
			lines = nil
			for line := range strings.Lines(out) {
				if _, what, ok := strings.Cut(line, "sees "); ok {
					lines = append(lines, strings.TrimSpace(what))
				}
			}
			return len(lines) == 2, out
		})
		slices.Sort(lines)
		seen = append(seen, strings.Join(lines, ", "))
	}
	slices.Sort(seen)
	if want := []string{"0 GPU-a,GPU-b, 1 GPU-a,GPU-b", "0 GPU-c,GPU-d, 1 GPU-c,GPU-d"}; !slices.Equal(seen, want) {
		t.Errorf("workers see %q, want %q", seen, want)
	}
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, job := range jobs {
		c.ends(job, time.Minute)
	}
}
