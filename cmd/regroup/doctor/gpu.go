package doctor

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/regroup-io/regroup/agent/gpus"
	"github.com/regroup-io/regroup/agent/preflight"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events/figures"
	"github.com/regroup-io/regroup/internal/english"
)

// measured is a finding about a GPU, with its figures.
type measured struct {
	finding
	GPU       *figures.GPU       `json:"gpu,omitempty"`
	Compared  []figures.Compared `json:"compared,omitempty"` // with the node's other GPUs of its model
	AllReduce *figures.AllReduce `json:"all_reduce,omitempty"`
}

// measure finds the GPUs of this machine and measures them.
func (m machine) measure(ctx context.Context) []measured {
	which := cmp.Or(m.env.Getenv("REGROUP_AGENT_GPUS"), gpus.Auto)
	all, err := gpus.Find(ctx, which)
	if err != nil {
		return []measured{{finding: finding{"gpus", problem, err.Error(), "repair the driver, or name them: REGROUP_AGENT_GPUS=0,1 regroup doctor --gpu"}}}
	}
	if len(all) == 0 {
		_, missing := exec.LookPath("nvidia-smi")
		return []measured{{finding: noGPU(which, missing != nil, m.env.Getenv("CUDA_VISIBLE_DEVICES"))}}
	}
	fmt.Fprintf(m.env.Err, "measuring %s, which takes up to %s; what else runs there loses speed and memory meanwhile\n", english.Plural(len(all), "GPU"), preflight.EndWithin)
	return checkFigures(preflight.Run(ctx, preflight.Python(cmp.Or(m.python, m.env.Getenv("PYTHON_EXEC"))), all))
}

// noGPU judges that there is none; missing = nvidia-smi is.
func noGPU(which string, missing bool, visible string) finding {
	const fix = "containers: docker run --gpus all, with the NVIDIA container toolkit; or name GPUs as CUDA_VISIBLE_DEVICES does: REGROUP_AGENT_GPUS=0,1"
	switch {
	case which == gpus.None:
		return finding{"gpus", problem, "REGROUP_AGENT_GPUS=none", "unset REGROUP_AGENT_GPUS"}
	case missing:
		return finding{"gpus", problem, "none was found: there is no nvidia-smi in PATH, which comes with the driver of NVIDIA and lists its GPUs", fix}
	case visible != "":
		return finding{"gpus", problem, "none was found: CUDA_VISIBLE_DEVICES=" + visible + " names none that nvidia-smi lists", "unset CUDA_VISIBLE_DEVICES"}
	}
	return finding{"gpus", problem, "none was found: nvidia-smi lists none, or the driver is not loaded", fix}
}

// checkFigures judges what was measured.
func checkFigures(r preflight.Report) (all []measured) {
	add := func(m measured) { all = append(all, m) }
	if r.Device != "cuda" && r.Device != "" {
		add(measured{finding: finding{"device", note, "these are figures of a stand-in for tests, " + r.Device + ", and of no GPU", "unset " + preflight.TestDevice}})
	}
	if r.Problem != "" {
		return append(all, measured{finding: finding{"gpus", problem, "they cannot be measured: " + r.Problem, preflight.InstallTorch + ": regroup doctor --gpu --python .venv/bin/python; regroup doctor examines it"}})
	}
	for i, g := range r.GPUs {
		add(checkGPU(i, g, r.GPUs))
	}
	if a := r.AllReduce; a != nil {
		f := fine("all-reduce", "%d GPUs together, bus bandwidth %.4g GB/s", a.GPUs, a.BusGB)
		const fix = "NCCL_DEBUG=INFO says where it stops; nvidia-smi topo -m, and nvidia-smi nvlink -s"
		switch {
		case a.NotMeasured != "":
			f = finding{"all-reduce", note, fmt.Sprintf("%d GPUs together: not measured: %s", a.GPUs, a.NotMeasured), "repeat it; " + fix}
		case a.Failure != "":
			f = finding{"all-reduce", problem, fmt.Sprintf("%d GPUs together: %s", a.GPUs, a.Failure), fix}
		}
		add(measured{finding: f, AllReduce: a})
	}
	return all
}

// checkGPU judges the figures of a GPU beside those of the node's others.
func checkGPU(number int, g figures.GPU, all []figures.GPU) measured {
	m := measured{GPU: &g, Compared: g.Compare(all)}
	m.Check, m.State = fmt.Sprintf("gpu %d", number), ok
	name := fmt.Sprintf("%s, %s", cmp.Or(g.Model, "unknown model"), g.ID)
	var figures, slow, fixes []string
	for _, c := range m.Compared {
		figures = append(figures, c.String())
		if c.Slow {
			slow = append(slow, c.Name)
		}
	}
	tested := "memory tested: unknown"
	if g.MemoryTested > 0 {
		tested = screen.Bytes(g.MemoryTested) + " of memory tested"
	}
	said := append([]string{name}, figures...)
	said = append(said, tested)
	if len(slow) > 0 {
		m.State = note
		said[0] += ": slow in " + strings.Join(slow, ", ")
		fixes = append(fixes, "nvidia-smi -q -d PERFORMANCE,CLOCK,TEMPERATURE -i "+g.ID+" says what slows it down; nvidia-smi -q -i "+g.ID+" has the width of its PCIe link")
	}
	if g.NotMeasured != "" {
		m.State = note
		said = append(said, "not measured: "+g.NotMeasured)
		fixes = append(fixes, "repeat it when nothing else uses the machine")
	}
	if g.MemoryTotal > 0 && g.MemoryFree < g.MemoryTotal*9/10 {
		m.State = note
		said = append(said, fmt.Sprintf("%.1f of %.1f GiB were in use: another process may have slowed it down", float64(g.MemoryTotal-g.MemoryFree)/gib, float64(g.MemoryTotal)/gib))
		fixes = append(fixes, "nvidia-smi shows the processes")
	}
	if g.Failure != "" {
		m.State = problem
		said = []string{name + ": " + g.Failure}
		for i, c := range m.Compared {
			if c.Value > 0 {
				said = append(said, figures[i])
			}
		}
		fixes = []string{"give it no work (regroup node quarantine NODE/SLOT), and reset or replace it; nvidia-smi -q -d ECC,PAGE_RETIREMENT -i " + g.ID + " and dmesg have its errors"}
	}
	m.Found, m.Fix = strings.Join(said, "; "), strings.Join(fixes, "; ")
	return m
}

// findings returns what is printed of them.
func findings(all []measured) []finding {
	out := make([]finding, len(all))
	for i, m := range all {
		out[i] = m.finding
	}
	return out
}
