package jobflags

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
)

// TestLaunchersTable checks that the document has the table generated from the flags.
func TestLaunchersTable(t *testing.T) {
	b, err := os.ReadFile("../../../../docs/launchers.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(b), "\n\n"+Launchers()) {
		t.Errorf("docs/launchers.md does not end with this table (make generate):\n%s", Launchers())
	}
}

// TestTorchrun covers command lines of torchrun's documentation.
func TestTorchrun(t *testing.T) {
	t.Setenv("PYTHON_EXEC", "")
	type want struct {
		workers spec.Workers
		command string
		name    string
		notes   int
	}
	for args, w := range map[string]want{
		"--standalone --nnodes=1 --nproc-per-node=4 train.py --lr 0.1":                                   {spec.Workers{Min: 4, Max: 4}, "python3 -u train.py --lr 0.1", "train", 0},
		"--nnodes 1:4 --nproc_per_node 2 --max_restarts 3 --rdzv_id job-1 train.py --nnodes 7":           {spec.Workers{Min: 2, Max: 8}, "python3 -u train.py --nnodes 7", "job-1", 0},
		"--nproc-per-node 2 --rdzv-backend=c10d --rdzv-endpoint=h:29400 --monitor-interval 1 train.py":   {spec.Workers{Min: 2, Max: 2}, "python3 -u train.py", "train", 3},
		"--standalone --nnodes 1:4 --nproc-per-node 3 -m pkg.train --epochs 2":                           {spec.Workers{Min: 3, Max: 3}, "python3 -u -m pkg.train --epochs 2", "train", 0},
		"--nproc-per-node 2 --no-python ./train.py":                                                      {spec.Workers{Min: 2, Max: 2}, "./train.py", "train", 0},
		"--nproc-per-node 1 --node-rank 0 --master-addr h --master-port 29500 -t 3 -r 0 python train.py": {spec.Workers{Min: 1, Max: 1}, "python train.py", "train", 3},
		"--workers 2 ./train.py": {spec.Workers{Min: 2, Max: 2}, "./train.py", "train", 0}, // unchanged
		"--nproc-per-node 1 --start-method spawn --role default --local-addr h ./a.out": {spec.Workers{Min: 1, Max: 1}, "./a.out", "a", 2},
		"-j 2x8 ./a.out":               {spec.Workers{Min: 16, Max: 16}, "./a.out", "a", 0},
		"-j 1:4x2 train.py --lr 0.1":   {spec.Workers{Min: 2, Max: 8}, "python3 -u train.py --lr 0.1", "train", 0},
		"--nproc-per-node=cpu ./a.out": {spec.Workers{Min: runtime.NumCPU(), Max: runtime.NumCPU()}, "./a.out", "a", 0},
	} {
		f, rest := parseWith(t, strings.Fields(args)...)
		s, err := f.Spec(rest)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		if got := (want{s.Workers, strings.Join(s.Command, " "), s.Name, len(f.Launch().Notes)}); got != w {
			t.Errorf("%s:\ngot  %+v\nwant %+v, %q", args, got, w, f.Launch().Notes)
		}
	}
	f, rest := parseWith(t, "--rdzv-conf", "join_timeout=90,last_call_timeout=5", "./a.out")
	if s, err := f.Spec(rest); err != nil || s.Elastic.StartWithin.D().Seconds() != 90 || len(f.Launch().Notes) != 1 {
		t.Errorf("--rdzv-conf: %+v, %v, %q", s.Elastic, err, f.Launch().Notes)
	}
}

// TestProcessesOfTorchrun: these flags do what they do with regroup torchrun.
func TestProcessesOfTorchrun(t *testing.T) {
	f, rest := parseWith(t, "--role", "trainer", "--virtual-local-rank", "--shutdown-timeout", "1.5", "--no-python", "--run-path", "./a")
	s, err := f.Spec(rest)
	if err != nil || s.Processes.Role != "trainer" || !s.Processes.VirtualLocalRank || s.Stop.Grace.D() != 1500*time.Millisecond || len(f.Launch().Notes) != 0 {
		t.Errorf("%+v, %v, %v, %q", s.Processes, s.Stop, err, f.Launch().Notes)
	}
	if got := strings.Join(s.Command, " "); got != "python3 -u ./a" {
		t.Errorf("--run-path runs %q", got)
	}
	f, rest = parseWith(t, "--shutdown-timeout", "1.5", "--stop-grace", "5s", "./a")
	if s, err := f.Spec(rest); err != nil || s.Stop.Grace.D() != 5*time.Second {
		t.Errorf("--stop-grace does not come first: %v, %v", s.Stop, err)
	}
}

// TestWhatCannotBeHonouredIsRefused checks that unsupported flags are refused with their
// replacement.
func TestWhatCannotBeHonouredIsRefused(t *testing.T) {
	for _, x := range launcherFlags {
		if x.Outcome != Refused {
			continue
		}
		args := []string{"--" + strings.ReplaceAll(x.Name(), "-", "_") + "=x", "./a.out"}
		f, rest := parseWith(t, args...)
		_, err := f.Spec(rest)
		if fs := errcode.FieldErrorsOf(err); len(fs) != 1 || fs[0].Path != "--"+x.Name() || !strings.Contains(fs[0].Message, x.Does) {
			t.Errorf("%q: %v, want one error with %q", args, err, x.Does)
		}
	}
	for args, path := range map[string]string{
		"--node-rank 1":                "--node-rank",
		"--shutdown-timeout soon":      "--shutdown-timeout",
		"--nproc-per-node 0":           "--nproc-per-node",
		"--nproc-per-node many":        "--nproc-per-node",
		"--nnodes 4:2":                 "--nnodes",
		"--nnodes 2 --workers 4":       "--workers",
		"--nproc-per-node 2 -np 2":     "--num-proc",
		"--rdzv-conf jointimeout=1":    "--rdzv-conf jointimeout",
		"--fusion-threshold-mb=-1":     "--fusion-threshold-mb",
		"--cycle-time-ms fast":         "--cycle-time-ms",
		"--redirects 3":                "--redirects",
		"-r 3 --tee 3":                 "--redirects",
		"--local_ranks_filter 0 -np 2": "--local-ranks-filter",
	} {
		f, rest := parseWith(t, append(strings.Fields(args), "./a.out")...)
		_, err := f.Spec(rest)
		if !slices.ContainsFunc(errcode.FieldErrorsOf(err), func(x spec.FieldError) bool { return x.Path == path }) {
			t.Errorf("%s: %v, want an error about %s", args, err, path)
		}
	}
}

// TestNodesOfTorchrun covers options for nodes in a run with one node, and options for this machine
// with other nodes.
func TestNodesOfTorchrun(t *testing.T) {
	for args, want := range map[string]struct{ here, remote bool }{
		"--nproc-per-node 2":                           {true, true},
		"--nnodes 1 --nproc-per-node 2":                {true, true},
		"--nnodes 2 --nproc-per-node 2":                {false, true},
		"--nnodes 1:2 --nproc-per-node 2":              {false, true},
		"--standalone --nnodes 1:2 --nproc-per-node 2": {true, true},
		"--nproc-per-node auto":                        {true, false},
	} {
		f, rest := parseWith(t, append(strings.Fields(args), "./a.out")...)
		if _, err := f.Spec(rest); err != nil {
			t.Fatal(err)
		}
		here, remote := f.Launch().Here(), f.Launch().Remote()
		if (here == nil) != want.here || (remote == nil) != want.remote {
			t.Errorf("%s: %v; %v", args, here, remote)
		}
	}
}

// TestTheAdviceForSeveralNodesIsComplete: two lines for a shell, with the secret that the agents
// need, and what the run was told that an agent can be told too.
func TestTheAdviceForSeveralNodesIsComplete(t *testing.T) {
	f, rest := parseWith(t, "--nnodes", "1:2", "--nproc_per_node", "2", "--name", "mnist", "--max-restarts", "3", "--env", "A=it's", "--env", "B=1,2", "./a.out", "two words")
	if _, err := f.Spec(rest); err != nil {
		t.Fatal(err)
	}
	_, advice, _ := strings.Cut(f.Launch().Here().Error(), "\n")
	want := `  REGROUP_SECRET=SECRET regroup up --no-agent --listen 0.0.0.0:4222
  REGROUP_SECRET=SECRET regroup agent --server nats://HOST:4222 --join-job mnist --nnodes 1:2 --nproc-per-node 2 '--env=A=it'\''s' --env=B=1,2 --max-restarts=3 -- ./a.out 'two words'`
	if advice != want {
		t.Errorf("advice:\n%s\nwant:\n%s", advice, want)
	}
	words := strings.Fields("--join-job mnist --nnodes 1:2 --nproc-per-node 2 --max-restarts=3 -- ./a.out")
	if _, err := joinSpec(t, strings.Join(words, " ")); err != nil {
		t.Errorf("an agent does not take it: %v", err)
	}
	f, rest = parseWith(t, "--nnodes", "2", "--nproc-per-node", "cpu", "train.py")
	if _, err := f.Spec(rest); err != nil {
		t.Fatal(err)
	}
	if advice := f.Launch().Here().Error(); !strings.Contains(advice, fmt.Sprintf("--nproc-per-node %d -- python3 -u train.py", runtime.NumCPU())) {
		t.Errorf("what this machine has is no number in %s", advice)
	}
}

// TestPerNode counts GPUs as CUDA shows them.
func TestPerNode(t *testing.T) {
	dev := t.TempDir()
	if _, _, err := perNode("gpu", dev, func(string) string { return "" }); err == nil {
		t.Error("gpu is taken where there is none")
	}
	if n, _, err := perNode("auto", dev, func(string) string { return "" }); err != nil || n != runtime.NumCPU() {
		t.Errorf("auto is %d, %v without a GPU", n, err)
	}
	for i := range 4 {
		if err := os.WriteFile(filepath.Join(dev, "nvidia"+strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dev, "nvidiactl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for visible, want := range map[string]int{"": 4, "0,2": 2, "GPU-1": 1, "1,-1,2": 1, "0,1,2,3,4,5": 4} {
		for _, word := range []string{"gpu", "auto"} {
			if n, counted, err := perNode(word, dev, func(string) string { return visible }); err != nil || n != want || !counted {
				t.Errorf("%s with %q is %d, %v; want %d", word, visible, n, err, want)
			}
		}
	}
}

// TestHorovodrunVariables covers the workers' environment.
func TestHorovodrunVariables(t *testing.T) {
	args := "-np 2 --fusion-threshold-mb 32 --cycle-time-ms 3.5 --timeline-filename /tmp/t.json --timeline-mark-cycles --min-num-proc 2 --max_num_proc 4 --log-level WARNING --env HOROVOD_CYCLE_TIME=1 python train.py -np 7 --log-level INFO"
	f, rest := parseWith(t, strings.Fields(args)...)
	s, err := f.Spec(rest)
	want := map[string]string{"HOROVOD_FUSION_THRESHOLD": "33554432", "HOROVOD_CYCLE_TIME": "1", "HOROVOD_TIMELINE": "/tmp/t.json", "HOROVOD_TIMELINE_MARK_CYCLES": "1"}
	if err != nil || !reflect.DeepEqual(s.Env, want) || s.Workers != (spec.Workers{Min: 2, Max: 4}) {
		t.Errorf("%+v, %+v, %v", s.Env, s.Workers, err)
	}
	if got := strings.Join(s.Command, " "); got != "python train.py -np 7 --log-level INFO" {
		t.Errorf("the program is %q", got)
	}
	if l := f.fs.Lookup("log-level").Value.String(); l != "warn" {
		t.Errorf("--log-level WARNING is %q", l)
	}
}

func TestLocalhost(t *testing.T) {
	for hosts, want := range map[string]string{"localhost:4": "me:4", "127.0.0.1": "me", "a:2,localhost:1": "a:2,me:1", "": "", "a:1": "a:1"} {
		if got := Localhost(hosts, "me"); got != want {
			t.Errorf("%q is %q, want %q", hosts, got, want)
		}
	}
}
