package proc

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/agent/workerenv"
)

// fakeTorch is the folder of a torch for spares, which says what they do with its GPUs.
func fakeTorch(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("testdata/gpus")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// seeing is the context of a spare on the n-th of some GPUs.
func seeing(gpus string, n int) workerenv.Context {
	return workerenv.Context{Visible: []string{"CUDA_VISIBLE_DEVICES=" + gpus}, Device: n}
}

// contexts keeps spares with contexts, and returns its newest answer.
func (r *rig) contexts(torch string, n int, all ...workerenv.Context) (newest func() worker.SparesKept) {
	r.t.Helper()
	answers := make(chan worker.SparesKept, 100)
	r.d.KeepSpares(worker.KeepSpares{
		Job: "j-0000", Count: n, Contexts: all, Command: []string{python, "-c", "pass"}, Env: map[string]string{"PYTHONPATH": torch, "PYTHONDONTWRITEBYTECODE": "1", "CUDA_VISIBLE_DEVICES": "all"},
	}, func(s worker.SparesKept) { answers <- s })
	var last worker.SparesKept
	return func() worker.SparesKept {
		for {
			select {
			case last = <-answers:
			default:
				return last
			}
		}
	}
}

// TestASpareHasStartedCUDA on the GPU of the worker that takes it, and is taken by no other one.
func TestASpareHasStartedCUDA(t *testing.T) {
	withoutTorch(t)
	r := newRig(t, Options{})
	torch := fakeTorch(t)
	newest := r.contexts(torch, 2, seeing("GPU-a,GPU-b", 0), seeing("GPU-a,GPU-b", 1))
	until(t, "both are ready", func() bool { return newest().Ready == 2 })
	run := func(context workerenv.Context) []string {
		t.Helper()
		r.id += "x"
		s := r.workerOf("", python, "-c", `import os, sys; print(os.environ["CUDA_VISIBLE_DEVICES"], "torch" in sys.modules)`)
		s.Env["CUDA_VISIBLE_DEVICES"], s.Context = strings.TrimPrefix(context.Visible[0], "CUDA_VISIBLE_DEVICES="), &context
		r.startWith(s)
		next[worker.ProcessStarted](r)
		if x := next[worker.ProcessExited](r); x.ExitCode != 0 {
			t.Fatalf("%+v", x)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		lines := r.lines
		r.lines = nil
		return lines
	}
	warm := "[memory on %[1]s NCCL has started on %[1]s CUDA has started on %[1]s GPU-a,GPU-b True]"
	for _, c := range []struct {
		context workerenv.Context
		want    string
		ready   int
	}{
		{seeing("GPU-b", 0), "[GPU-b False]", 2},
		{seeing("GPU-a,GPU-b", 1), fmt.Sprintf(warm, "GPU-b"), 1},
		{seeing("GPU-a,GPU-b", 1), "[GPU-a,GPU-b False]", 1},
		{seeing("GPU-a,GPU-b", 0), fmt.Sprintf(warm, "GPU-a"), 0},
	} {
		if got := fmt.Sprint(run(c.context)); got != c.want {
			t.Errorf("a worker that sees %v says %s, want %s", c.context, got, c.want)
		}
		if got := newest(); got.Ready != c.ready {
			t.Errorf("then %d are ready, want %d", got.Ready, c.ready)
		}
	}
}

// TestSparesFollowTheGPUs: those with a context that no worker has any more are ended, and those
// that are missing are started; each context has its share.
func TestSparesFollowTheGPUs(t *testing.T) {
	withoutTorch(t)
	r := newRig(t, Options{})
	torch := fakeTorch(t)
	have := func() (all map[string][]int) {
		r.d.mu.Lock()
		defer r.d.mu.Unlock()
		all = map[string][]int{}
		for _, sp := range r.d.spares["j-0000"].idle {
			all[fmt.Sprint(*sp.context)] = append(all[fmt.Sprint(*sp.context)], sp.p.pid)
		}
		return all
	}
	a, b := seeing("GPU-a,GPU-b", 0), seeing("GPU-a,GPU-b", 1)
	newest := r.contexts(torch, 3, a, b)
	until(t, "three are ready", func() bool { return newest().Ready == 3 })
	before := have()
	if len(before[fmt.Sprint(a)]) != 2 || len(before[fmt.Sprint(b)]) != 1 {
		t.Errorf("the contexts are %v", before)
	}
	c := seeing("GPU-b", 0)
	newest = r.contexts(torch, 2, b, c)
	until(t, "two are ready", func() bool { return newest().Ready == 2 })
	now := have()
	if fmt.Sprint(now[fmt.Sprint(b)]) != fmt.Sprint(before[fmt.Sprint(b)]) || len(now[fmt.Sprint(c)]) != 1 || len(now) != 2 {
		t.Errorf("they were %v and are %v", before, now)
	}
	until(t, "those of a GPU without a worker have ended", func() bool {
		return !runs(before[fmt.Sprint(a)][0]) && !runs(before[fmt.Sprint(a)][1])
	})
}

// TestASpareWithoutItsGPU ends, because the state of CUDA in it is unknown, and says why.
func TestASpareWithoutItsGPU(t *testing.T) {
	withoutTorch(t)
	for gpus, want := range map[string]string{
		"GPU-bad": "GPU 0: RuntimeError: CUDA error: out of memory",
		"":        "GPU 0: RuntimeError: torch finds no GPU",
	} {
		r := newRig(t, Options{})
		newest := r.contexts(fakeTorch(t), 1, seeing(gpus, 0))
		until(t, "it has said why", func() bool { return newest().Problem != "" })
		if got := newest(); got.Problem != want || got.Ready != 0 {
			t.Errorf("with %q: %+v, want %s", gpus, got, want)
		}
		until(t, "it has ended", func() bool {
			r.d.mu.Lock()
			defer r.d.mu.Unlock()
			return len(r.d.spares["j-0000"].idle) == 0
		})
		if got := newest(); got.Problem != want {
			t.Errorf("with %q, when it has ended: %+v", gpus, got)
		}
	}
}
