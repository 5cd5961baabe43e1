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

// nvidia has the processes that are started from now on find a program nvidia-smi, which lists GPUs
// of one model and memory. It returns its folder.
func (c *cluster) nvidia(what string, ids ...string) string {
	c.t.Helper()
	tools := c.t.TempDir()
	script := "#!/bin/sh\nfor i in " + strings.Join(ids, " ") + "; do echo \"GPU-$i, " + what + ", Disabled\"; done\n"
	if err := os.WriteFile(filepath.Join(tools, "nvidia-smi"), []byte(script), 0o700); err != nil {
		c.t.Fatal(err)
	}
	c.env = []string{"PATH=" + tools + ":" + os.Getenv("PATH")}
	return tools
}

// TestJobsGetTheGPUsThatTheyAskFor: of two nodes with different GPUs, a job that asks for one model
// has workers on one alone. A job that asks for what is not there says so, and runs as soon as such
// a node comes; until then a later job that can use what is free does not wait for it.
func TestJobsGetTheGPUsThatTheyAskFor(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.services(1)
	c.nvidia("NVIDIA H100 80GB HBM3, 81559", "a", "b")
	c.agent("node-a", 0)
	c.nvidia("Tesla T4, 15360", "c", "d")
	c.agent("node-b", 0)
	c.nodes(time.Minute, "node-a", "node-b")
	end := filepath.Join(t.TempDir(), "end")
	submit := func(flags ...string) ident.JobID {
		return c.submit(append(flags, "--", "sh", "-c", fmt.Sprintf(`echo "sees $REGROUP_NODE $CUDA_VISIBLE_DEVICES"; until test -e %s; do sleep 0.1; done`, end))...)
	}
	sees := func(job ident.JobID, want ...string) {
		t.Helper()
		eventually(t, time.Minute, func() (bool, string) {
			out, _, _ := c.cli("logs", string(job))
			var lines []string
			for line := range strings.Lines(out) {
				if _, what, ok := strings.Cut(line, "sees "); ok {
					lines = append(lines, strings.TrimSpace(what))
				}
			}
			slices.Sort(lines)
			return slices.Equal(lines, want), out
		})
	}
	hopper := submit("--gpu", "h100", "--workers", "1:4")
	sees(hopper, "node-a GPU-a,GPU-b", "node-a GPU-a,GPU-b")
	absent := submit("--gpu", "A100", "--gpu-memory", "40GiB", "--workers", "2")
	none := "needs 2 slots with a GPU of model A100 with at least 40GiB, more than there are: none of 4 on 2 nodes has one (2 NVIDIA H100 80GB HBM3 with 81559MiB, 2 Tesla T4 with 15360MiB)"
	eventually(t, time.Minute, func() (bool, string) {
		out, errs, _ := c.cli("explain", string(absent))
		return strings.Contains(out, none), out + errs
	})
	turing := submit("--gpu-memory", "15GB", "--workers", "1:4")
	sees(turing, "node-b GPU-c,GPU-d", "node-b GPU-c,GPU-d")
	c.nvidia("NVIDIA A100-SXM4-40GB, 40960", "e", "f")
	c.agent("node-c", 0)
	sees(absent, "node-c GPU-e,GPU-f", "node-c GPU-e,GPU-f")
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, job := range []ident.JobID{hopper, absent, turing} {
		c.ends(job, time.Minute)
	}
}

// TestEachJobHasTheGPUsOfItsSlots: a node has as many slots as GPUs if nobody says otherwise, shows
// them, and two jobs on it have two each. nvidia-smi is a script here.
func TestEachJobHasTheGPUsOfItsSlots(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	tools := c.nvidia("NVIDIA H100 80GB HBM3, 81559", "a", "b", "c", "d")
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
