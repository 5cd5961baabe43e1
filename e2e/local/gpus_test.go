package local

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/events/devices"
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
	c.nodes(patience, "node-a", "node-b")
	end := filepath.Join(t.TempDir(), "end")
	submit := func(flags ...string) ident.JobID {
		return c.submit(append(flags, "--", "sh", "-c", fmt.Sprintf(`echo "sees $REGROUP_NODE $CUDA_VISIBLE_DEVICES"; until test -e %s; do sleep 0.1; done`, end))...)
	}
	sees := func(job ident.JobID, want ...string) {
		t.Helper()
		eventually(t, patience, func() (bool, string) {
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
	planned := func(want string, flags ...string) {
		t.Helper()
		exits := 0
		if strings.Contains(want, "would wait") {
			exits = 13
		}
		if out, errs, code := c.cli(append(append([]string{"plan", "--name", "x"}, flags...), "--", "true")...); code != exits || out != want {
			t.Errorf("plan exits %d: %s%s\nwant %s", code, out, errs, want)
		}
	}
	planned("x would start at once with 2 of 1 to 4 workers: node-a 2\nIt has 2 of up to 4 workers with a GPU of model h100: 0 free of 2 on 1 node.\n", "--gpu", "h100", "--workers", "1:4")
	hopper := submit("--gpu", "h100", "--workers", "1:4")
	sees(hopper, "node-a GPU-a,GPU-b", "node-a GPU-a,GPU-b")
	absent := submit("--gpu", "A100", "--gpu-memory", "40GiB", "--workers", "2")
	none := "needs 2 slots with a GPU of model A100 with at least 40GiB, more than there are: none of 4 on 2 nodes has one (2 NVIDIA H100 80GB HBM3 with 81559MiB, 2 Tesla T4 with 15360MiB)"
	eventually(t, patience, func() (bool, string) {
		out, errs, _ := c.cli("explain", string(absent))
		return strings.Contains(out, none), out + errs
	})
	planned(fmt.Sprintf("x would wait: it needs 2 slots with a GPU of model h100: 0 free of 2 on 1 node.\nIt would be number 2 in the queue.\nIt would start when %s ends.\n", hopper), "--gpu", "h100", "--workers", "2")
	turing := submit("--gpu-memory", "15GB", "--workers", "1:4")
	sees(turing, "node-b GPU-c,GPU-d", "node-b GPU-c,GPU-d")
	c.nvidia("NVIDIA A100-SXM4-40GB, 40960", "e", "f")
	c.agent("node-c", 0)
	sees(absent, "node-c GPU-e,GPU-f", "node-c GPU-e,GPU-f")
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, job := range []ident.JobID{hopper, absent, turing} {
		c.ends(job, patience)
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
	c.nodes(patience, "node-a")
	if v := c.node("node-a"); v.Slots != 4 || len(v.GPUs) != 4 || v.GPUs[3] != (devices.GPU{ID: "GPU-d", Model: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559}) {
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
		eventually(t, patience, func() (bool, string) {
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
		c.ends(job, patience)
	}
}

// TestAGPUAtFaultIsASlotInQuarantine: what the driver reports takes a worker from its GPU at once,
// with the reason, and a GPU that nvidia-smi does not list any more is one, too.
func TestAGPUAtFaultIsASlotInQuarantine(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	tools := t.TempDir()
	replace := func(name, text string) { // at once: it may be read
		t.Helper()
		path := filepath.Join(tools, name)
		if err := os.WriteFile(path+".new", []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	rows := []string{"GPU-a, 00000000:3B:00.0, 1024, 50, 60, 0, 0\n", "GPU-b, 00000000:5E:00.0, 1024, 50, 61, 0, 0\n", "GPU-c, 00000000:AF:00.0, 1024, 50, 62, 0, 0\n"}
	replace("state", strings.Join(rows, ""))
	replace("nvidia-smi", `#!/bin/sh
case "$1" in
--query-gpu=uuid,name,*) for i in a b c; do echo "GPU-$i, NVIDIA H100 80GB HBM3, 81559, Disabled"; done ;;
*) cat "${0%/*}/state" ;;
esac
`)
	log := filepath.Join(tools, "kmsg")
	if err := unix.Mkfifo(log, 0o600); err != nil {
		t.Fatal(err)
	}
	kernel, err := os.OpenFile(log, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	c.env = []string{"PATH=" + tools + ":" + os.Getenv("PATH"), "REGROUP_AGENT_GPU_LOG=" + log, "REGROUP_AGENT_GPU_POLL=1s", "REGROUP_DISCOVERY_QUARANTINE_FIRST=10m"}
	c.services(1)
	c.agent("node-a", 0)
	eventually(t, patience, func() (bool, string) {
		v := c.node("node-a")
		return v.Slots == 3 && len(v.GPUs) == 3 && v.GPUs[2].Reading != nil && *v.GPUs[2].Reading.Celsius == 62, fmt.Sprintf("%+v", v)
	})
	job := c.submit("--workers", "1:1", "--", "sh", "-c", `echo "runs on $CUDA_VISIBLE_DEVICES"; exec sleep 3600`)
	on := func(gpu string) {
		t.Helper()
		eventually(t, patience, func() (bool, string) {
			out, _, _ := c.cli("logs", string(job))
			lines := strings.Split(strings.TrimSpace(out), "\n")
			return strings.HasSuffix(lines[len(lines)-1], "runs on "+gpu), out
		})
	}
	on("GPU-a")
	if _, err := kernel.WriteString("4,812,5123456,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"); err != nil {
		t.Fatal(err)
	}
	on("GPU-b")
	replace("state", rows[0]+rows[2])
	on("GPU-c")
	out, errs, code := c.cli("node", "gpus")
	for _, want := range []string{"quarantined: Xid 79: GPU has fallen off the bus", "quarantined: nvidia-smi does not list it any more"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("node gpus exits %d without %q: %s%s", code, want, out, errs)
		}
	}
	if out, errs, code := c.cli("stop", string(job), "--now"); code != 0 {
		t.Fatalf("stop exits %d: %s%s", code, out, errs)
	}
}

// TestAGPUIsFreeBeforeTheNextJobHasIt: a worker whose slot now belongs to another job takes its
// time to stop. The other job's begins when it has ended.
func TestAGPUIsFreeBeforeTheNextJobHasIt(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.env = []string{"REGROUP_AGENT_GPUS=GPU-a,GPU-b", "REGROUP_AGENT_GPU_POLL=0s"}
	c.services(1)
	c.agent("node-a", 0)
	c.nodes(patience, "node-a")
	dir := t.TempDir()
	there := func(name string) {
		t.Helper()
		eventually(t, patience, func() (bool, string) {
			_, err := os.Stat(filepath.Join(dir, name))
			return err == nil, name + " is missing"
		})
	}
	first := c.submit("--workers", "1:2", "--stop-grace", "1h", "--", "sh", "-c", fmt.Sprintf(`cd %s
trap 'touch told.$RANK; until test -e let-go; do sleep 0.05; done; touch gone.$RANK; exit 0' TERM
touch runs.$RANK.$WORLD_SIZE; while :; do sleep 0.05; done`, dir))
	there("runs.1.2")
	if out, errs, code := c.cli("scale", string(first), "1:1"); code != 0 {
		t.Fatalf("scale exits %d: %s%s", code, out, errs)
	}
	there("told.1")
	second := c.submit("--workers", "1:1", "--", "sh", "-c", fmt.Sprintf(`cd %s; test -e gone.1 && touch free; touch began`, dir))
	eventually(t, patience, func() (bool, string) {
		out, _, _ := c.cli("status", string(second), "-o", "json")
		return strings.Contains(out, `"node": "node-a"`), out
	})
	if err := os.WriteFile(filepath.Join(dir, "let-go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.ends(second, patience)
	there("began")
	there("free")
	if out, errs, code := c.cli("stop", string(first), "--now"); code != 0 {
		t.Fatalf("stop exits %d: %s%s", code, out, errs)
	}
}

// TestAJobBeginsWithSparesOnItsGPUs: its first workers, and those that are started again, are
// interpreters that have started CUDA on the worker's own GPU. A job whose spares cannot be ready
// fails, and says why. The torch of these interpreters is a stand-in.
func TestAJobBeginsWithSparesOnItsGPUs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.nvidia("NVIDIA H100 80GB HBM3, 81559", "a", "b")
	c.services(1)
	c.agent("node-a", 0)
	c.nodes(patience, "node-a")
	torch, err := filepath.Abs("../../agent/proc/testdata/gpus")
	if err != nil {
		t.Fatal(err)
	}
	submit := func(flags ...string) ident.JobID {
		return c.submit(append([]string{"--workers", "2", "--max-restarts", "1", "--spares", "2", "--spare-contexts", "--await-spares", "--env", "PYTHONPATH=" + torch, "--env", "PYTHONDONTWRITEBYTECODE=1"}, flags...)...)
	}
	end, die := filepath.Join(t.TempDir(), "end"), filepath.Join(t.TempDir(), "die")
	job := submit("--", "/usr/bin/python3", "-c", fmt.Sprintf(`import os, sys, time
import torch
rank = int(os.environ["LOCAL_RANK"])
print("rank", rank, "restart", os.environ["TORCHELASTIC_RESTART_COUNT"], "has", torch.cuda.visible[rank], flush=True)
while not os.path.exists(%q):
    if rank == 1 and os.path.exists(%q):
        os.remove(%q)
        os.kill(os.getpid(), 9)
    time.sleep(0.05)
`, end, die, die))
	until := func(what string, holds func(out string) bool, args ...string) {
		t.Helper()
		eventually(t, patience, func() (bool, string) {
			out, errs, _ := c.cli(args...)
			return holds(out), what + ": " + out + errs
		})
	}
	began := func(restarts int) func(string) bool { // each has taken the spare of its GPU
		return func(out string) bool {
			for rank, gpu := range []string{"GPU-a", "GPU-b"} {
				if strings.Count(out, "CUDA has started on "+gpu) != restarts+1 || !strings.Contains(out, fmt.Sprintf("rank %d restart %d has %s", rank, restarts, gpu)) {
					return false
				}
			}
			return true
		}
	}
	until("the first workers were spares", began(0), "logs", string(job))
	ready := func(out string) bool { return strings.Contains(out, "spares: 2 of 2 ready on 1 node\n") }
	until("others are ready", ready, "status", string(job))
	if err := os.WriteFile(die, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until("those that were started again were spares", began(1), "logs", string(job))
	until("others are ready again", ready, "status", string(job))
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.ends(job, patience)
	if out, _, _ := c.cli("status", string(job)); strings.Contains(out, "spares") {
		t.Errorf("spares of a job that has ended: %s", out)
	}

	broken := submit("--preload", "no_such_module", "--", "/usr/bin/python3", "-c", "pass")
	until("it says why", func(out string) bool {
		return strings.Contains(out, "failed") && strings.Contains(out, "cannot start: a spare does not become ready: no_such_module: ModuleNotFoundError: No module named 'no_such_module'")
	}, "status", string(broken))
}
