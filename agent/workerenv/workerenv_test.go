package workerenv

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// TestOnlyWhatTheAgentSetsIsRefused: a job may not set the variables that its workers are given,
// and may set all others.
func TestOnlyWhatTheAgentSetsIsRefused(t *testing.T) {
	set := map[string]bool{workerprotocol.EnvToken: true} // the shell adds it
	for _, g := range []ident.Generation{0, 1} {
		p := Process{Generation: g, Incarnation: "01W"}
		env, _ := Host{ErrorDir: "/tmp"}.Variables(events.Launch{Job: "j", World: 1, Generation: g, Spec: spec.Job{}.WithDefaults()}, events.LaunchMember{}, p)
		for name := range env {
			set[name] = true
			if !spec.AgentSets(name) {
				t.Errorf("a job may set %s, and the agent takes it away", name)
			}
		}
	}
	for name := range set {
		s := spec.Job{Name: "x", Command: []string{"x"}, Workers: spec.Workers{Min: 1, Max: 1}, Env: map[string]string{name: "1"}}
		if bad := s.WithDefaults().Check(); len(bad) != 1 || !strings.Contains(bad[0].Message, "set by the agent") {
			t.Errorf("%s: %v", name, bad)
		}
	}
	for _, name := range []string{workerprotocol.EnvCheckpointDir, "REGROUP_GPU", "REGROUP_BUCKET_BYTES", "HOROVOD_FUSION_THRESHOLD", "HOROVOD_LOCAL_SOMETHING", "TORCHELASTIC_OTHER", "REGROUP_MINE"} {
		s := spec.Job{Name: "x", Command: []string{"x"}, Workers: spec.Workers{Min: 1, Max: 1}, Env: map[string]string{name: "1"}}
		if bad := s.WithDefaults().Check(); len(bad) != 0 {
			t.Errorf("%s: %v", name, bad)
		}
	}
}

// TestEverySettingOfWorkersReachesThem: what the Python package and the SDK read from the
// environment is set by the agent or inherited.
func TestEverySettingOfWorkersReachesThem(t *testing.T) {
	found := map[string]string{}
	name := regexp.MustCompile(`["'](REGROUP_[A-Z_]+)["']`)
	launchers := []string{"_companion.py", "rendezvous_handler.py", "client.py", "watch.py"} // read by those who start jobs, not by workers
	for _, root := range []string{"../../python/regroup", "../../elastic", "../../collective", "../../internal/workerprotocol"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if ext := filepath.Ext(path); d.IsDir() || ext != ".py" && ext != ".go" || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "nccltest") || slices.Contains(launchers, filepath.Base(path)) {
				return nil
			}
			b, err := os.ReadFile(path)
			for _, m := range name.FindAllStringSubmatch(string(b), -1) {
				found[m[1]] = path
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(found) < 15 {
		t.Fatalf("only %d variables were found: is this the right place?", len(found))
	}
	for _, n := range slices.Sorted(maps.Keys(found)) {
		if !spec.AgentSets(n) && !spec.WorkerSetting(n) {
			t.Errorf("%s, which %s reads, does not reach a worker from the shell: it belongs into events/spec/environment.go", n, found[n])
		}
	}
}

// TestTorchrunsVariables: what torchrun counts by node, and what depends on how processes are
// started.
func TestTorchrunsVariables(t *testing.T) {
	member := func(slot, rank, local, size, cross, crossSize int) events.LaunchMember {
		return events.LaunchMember{Member: tables.Member{
			Place: ident.Place{Node: "b", Slot: ident.Slot(slot)}, Rank: ident.Rank(rank), LocalRank: local, LocalSize: size, CrossRank: cross, CrossSize: crossSize,
		}}
	}
	// Nodes of 1, 2 and 3 workers: this one is the second, and one of two with a local rank 1.
	two := []events.LaunchMember{member(0, 1, 0, 2, 1, 3), member(1, 2, 1, 2, 0, 2)}
	run := func(members []events.LaunchMember, i int, h Host, p spec.Processes, set map[string]string) (env, defaults map[string]string) {
		l := events.Launch{Job: "j", World: 6, Generation: 5, Restarts: 2, Members: members, Master: "10.0.0.1:29400", Spec: spec.Job{Processes: p, Env: set}.WithDefaults()}
		return h.Variables(l, members[i], Process{Generation: 5, Incarnation: "01W"})
	}
	expect := func(env map[string]string, want map[string]string) {
		t.Helper()
		for name, value := range want {
			if got := env[name]; got != value {
				t.Errorf("%s is %q, must be %q", name, got, value)
			}
		}
	}
	env, defaults := run(two, 1, Host{}, spec.Processes{}, nil)
	expect(env, map[string]string{
		"GROUP_RANK": "1", "GROUP_WORLD_SIZE": "3", "HOROVOD_CROSS_RANK": "0", "HOROVOD_CROSS_SIZE": "2", "LOCAL_RANK": "1",
		"ROLE_NAME": "default", "TORCHELASTIC_RESTART_COUNT": "2", "TORCHELASTIC_USE_AGENT_STORE": "True", "CUDA_VISIBLE_DEVICES": "",
	})
	expect(defaults, map[string]string{"OMP_NUM_THREADS": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "THP_MEM_ALLOC_ENABLE": "1"})
	env, defaults = run(two[:1], 0, Host{}, spec.Processes{Role: "trainer", Store: spec.StoreRank0}, nil)
	expect(env, map[string]string{"ROLE_NAME": "trainer", "TORCHELASTIC_USE_AGENT_STORE": "False"})
	expect(defaults, map[string]string{"OMP_NUM_THREADS": ""}) // one worker has all processors

	own := spec.Processes{VirtualLocalRank: true}
	env, _ = run(two, 1, Host{}, own, nil)
	expect(env, map[string]string{"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": ""})
	env, _ = run(two, 1, Host{Devices: map[string]string{"CUDA_VISIBLE_DEVICES": "4, 7", "HIP_VISIBLE_DEVICES": "2,3"}}, own, nil)
	expect(env, map[string]string{"CUDA_VISIBLE_DEVICES": "7", "HIP_VISIBLE_DEVICES": "3"})
	env, _ = run(two, 1, Host{Devices: map[string]string{"CUDA_VISIBLE_DEVICES": "4,7"}}, own, map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"})
	expect(env, map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-b"})
}

// TestGPUsOfAJob: a job sees the GPUs of its slots, in the order of local ranks.
func TestGPUsOfAJob(t *testing.T) {
	four := Host{GPUs: []string{"GPU-a", "GPU-b", "GPU-c", "GPU-d"}}
	mig := Host{GPUs: []string{"MIG-a", "MIG-b"}}
	for name, c := range map[string]struct {
		h       Host
		slots   []ident.Slot // the first is the worker's
		virtual bool
		chosen  string
		want    string
		inPlace string // with recovery in the process, where local ranks are never virtual; "" = the same
	}{
		"all":                           {h: four, slots: []ident.Slot{3, 0, 1, 2}, want: "GPU-a,GPU-b,GPU-c,GPU-d"},
		"another job has the first two": {h: four, slots: []ident.Slot{2, 3}, want: "GPU-c,GPU-d"},
		"one is in quarantine":          {h: four, slots: []ident.Slot{3, 0, 1}, want: "GPU-a,GPU-b,GPU-d"},
		"virtual local rank":            {h: four, slots: []ident.Slot{3, 2}, virtual: true, want: "GPU-d", inPlace: "GPU-c,GPU-d"},
		"the job says which":            {h: four, slots: []ident.Slot{3, 2}, chosen: "7", want: "7"},
		"and has them one by one":       {h: four, slots: []ident.Slot{3, 2}, virtual: true, chosen: "6,7", want: "7", inPlace: "6,7"},
		"instances":                     {h: mig, slots: []ident.Slot{1, 0}, want: "MIG-b"},
		"instances, one by one":         {h: mig, slots: []ident.Slot{1, 0}, virtual: true, want: "MIG-b"},
		"none are known":                {slots: []ident.Slot{1, 0}, want: ""},
	} {
		for _, generation := range []ident.Generation{0, 3} { // recovery in the process, and by restart
			want := c.want
			if generation == 0 && c.inPlace != "" {
				want = c.inPlace
			}
			l := events.Launch{Job: "j", World: len(c.slots), Generation: generation, Spec: spec.Job{Processes: spec.Processes{VirtualLocalRank: c.virtual}}.WithDefaults()}
			if c.chosen != "" {
				l.Spec.Env = map[string]string{"CUDA_VISIBLE_DEVICES": c.chosen}
			}
			for _, slot := range c.slots {
				lower := 0
				for _, other := range c.slots {
					if other < slot {
						lower++
					}
				}
				l.Members = append(l.Members, events.LaunchMember{Member: tables.Member{Place: ident.Place{Node: "b", Slot: slot}, Rank: ident.Rank(lower), LocalRank: lower, LocalSize: len(c.slots)}})
			}
			env, _ := c.h.Variables(l, l.Members[0], Process{Generation: generation, Incarnation: "01W"})
			if got := env["CUDA_VISIBLE_DEVICES"]; got != want {
				t.Errorf("%s, generation %d: %q, want %q", name, generation, got, want)
			}
		}
	}
}
