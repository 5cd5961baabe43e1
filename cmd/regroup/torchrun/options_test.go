package torchrun

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/events/spec"
)

// parse reads a command line, with variables of the environment.
func parse(t *testing.T, env map[string]string, args ...string) (*options, []string) {
	t.Helper()
	fs := pflag.NewFlagSet("torchrun", pflag.ContinueOnError)
	o := add(fs)
	fs.SetInterspersed(false)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	o.read(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	return o, fs.Args()
}

func jobOf(t *testing.T, env map[string]string, args ...string) spec.Job {
	t.Helper()
	o, rest := parse(t, env, args...)
	job, err := o.job(rest)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func TestJob(t *testing.T) {
	t.Setenv("PYTHON_EXEC", "python3.11")
	job := jobOf(t, nil, "--nnodes=2:4", "--nproc_per_node", "3", "--max-restarts=2", "--rdzv_id=Run_7", "--role", "trainer",
		"--shutdown-timeout", "1.5", "--virtual-local-rank", "--rdzv-conf=join_timeout=60,is_host=1,read_timeout=5", "train.py", "--nnodes", "9")
	if want := []string{"python3.11", "-u", "train.py", "--nnodes", "9"}; !slices.Equal(job.Command, want) {
		t.Errorf("command %q, want %q", job.Command, want)
	}
	r := job.Rendezvous
	if r.Nodes != (spec.NodeRange{Min: 2, Max: 4}) || r.WorkersPerNode != 3 || r.JoinTimeout.D() != time.Minute || job.Workers != (spec.Workers{Min: 6, Max: 12}) {
		t.Errorf("rendezvous %+v of %+v", *r, job.Workers)
	}
	if *job.Failures.Max != 2 || job.Stop.Grace.D() != 1500*time.Millisecond || job.Name != "run-7" {
		t.Errorf("failures %d, grace %s, name %q", *job.Failures.Max, job.Stop.Grace.D(), job.Name)
	}
	if p := job.Processes; p.Role != "trainer" || !p.VirtualLocalRank || p.Store != spec.StoreAgent {
		t.Errorf("processes %+v", p)
	}
	if *jobOf(t, nil, "x.py").Failures.Max != 0 {
		t.Error("torchrun's default is not to restart")
	}
	for _, c := range []struct{ args, want string }{
		{"-m pkg.train a", "python3.11 -u -m pkg.train a"},
		{"--no-python ./run.sh a", "./run.sh a"},
		{"--run-path --no-python /x.py", "python3.11 -u /x.py"},
		{"--nproc 2 --standalone x.py", "python3.11 -u x.py"}, // cut off, as argparse allows
	} {
		if got := strings.Join(jobOf(t, nil, strings.Fields(c.args)...).Command, " "); got != c.want {
			t.Errorf("%s: runs %q, want %q", c.args, got, c.want)
		}
	}
}

// TestVariables: what is not given comes from PET_ variables.
func TestVariables(t *testing.T) {
	env := map[string]string{
		"PET_NNODES": "1:2", "PET_NPROC_PER_NODE": "4", "PET_MAX_RESTARTS": "7", "PET_NO_PYTHON": "1", "PET_MODULE": "0",
		"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "9", "PET_EVENT_LOG_HANDLER": "console",
	}
	o, rest := parse(t, env, "--max-restarts", "1", "run.sh")
	job, err := o.job(rest)
	if err != nil {
		t.Fatal(err)
	}
	if r := job.Rendezvous; r.Nodes.Max != 2 || r.WorkersPerNode != 4 || *job.Failures.Max != 1 || job.Command[0] != "run.sh" || job.Stop.Grace.D() != 9*time.Second {
		t.Errorf("%+v, %+v", *r, job)
	}
	if n := o.notes(); len(n) != 1 || !strings.HasPrefix(n[0], "--event-log-handler has no effect here") {
		t.Errorf("notes %q", n)
	}
}

// TestAllFindingsAtOnce: each mistake is named by its flag.
func TestAllFindingsAtOnce(t *testing.T) {
	o, rest := parse(t, nil, "--nnodes=4:2", "--nproc-per-node=none", "--max-restarts=-1", "--redirects=7", "--signals-to-handle=SIGNOT",
		"--shutdown-timeout=soon", "--rdzv-conf=join_timeout=-1", "--print-completion=bash")
	_, err := o.job(rest)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"--nnodes", "--nproc-per-node", "--max-restarts", "--redirects", "--signals-to-handle", "--shutdown-timeout", "--rdzv-conf join_timeout", "--print-completion", "training_script: is missing"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in %v", want, err)
		}
	}
}

// TestConf: keys that torchrun passes over are told and not refused, and one pair of quotes around
// all of it, which a shell has not removed, is no part of it.
func TestConf(t *testing.T) {
	for text, want := range map[string]struct {
		seconds int
		notes   []string
	}{
		"join_timeout=5,last_call_timeout=1":         {5, nil},
		"'join_timeout=5,timeout=5'":                 {5, []string{"--rdzv-conf is quoted twice", "--rdzv-conf timeout has no effect here: there is no store"}},
		`"join_timeout=5"`:                           {5, []string{"--rdzv-conf is quoted twice"}},
		"jon_timeout=5,join_timeout=7,is_host=1":     {7, []string{`--rdzv-conf jon_timeout has no effect here: it is not known; did you mean "join_timeout"?`}},
		"read_timeout=1,use_libuv=0, join_timeout=9": {9, []string{"--rdzv-conf read_timeout, use_libuv has no effect here"}},
	} {
		o, rest := parse(t, nil, "--rdzv-conf", text, "x.py")
		job, err := o.job(rest)
		if err != nil || job.Rendezvous.JoinTimeout.D() != time.Duration(want.seconds)*time.Second {
			t.Errorf("%s: %v, %+v", text, err, job.Rendezvous)
		}
		notes := o.notes()
		if len(notes) != len(want.notes) {
			t.Errorf("%s: notes %q", text, notes)
			continue
		}
		for i, n := range notes {
			if !strings.HasPrefix(n, want.notes[i]) {
				t.Errorf("%s: note %q, want %q", text, n, want.notes[i])
			}
		}
	}
}

func TestPlace(t *testing.T) {
	for _, c := range []struct {
		args, server string
		want         place
	}{
		{"x.py", "", place{own: true}},
		{"--standalone --nnodes 1:4 x.py", "nats://b:4222", place{own: true}},
		{"--nnodes 2 x.py", "nats://b:4222", place{url: "nats://b:4222"}},
		{"x.py", "nats://b:4222", place{url: "nats://b:4222"}},
		{"--nnodes 2 --master-addr 10.9.9.9 x.py", "", place{host: "10.9.9.9:29500"}},
		{"--nnodes 2 --master-addr 10.9.9.9 --master-port 7 --node-rank 1 x.py", "", place{url: "nats://10.9.9.9:7"}},
		{"--nnodes 2 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1 x.py", "", place{host: "127.0.0.1:29400"}},
		{"--nnodes 2 --rdzv-backend c10d --rdzv-endpoint 203.0.113.9:5 x.py", "", place{url: "nats://203.0.113.9:5"}},
		{"--nnodes 2 --rdzv-backend c10d --rdzv-endpoint [::1]:5 --rdzv-conf is_host=0 x.py", "", place{url: "nats://[::1]:5"}},
	} {
		o, _ := parse(t, nil, strings.Fields(c.args)...)
		if got, err := o.place(t.Context(), c.server); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.args, got, err, c.want)
		}
	}
	for args, want := range map[string]string{
		"--nnodes 2 --rdzv-backend c10d x.py":                      "--rdzv-endpoint is missing",
		"--nnodes 2 --rdzv-backend c10d --rdzv-endpoint :x x.py":   "no endpoint",
		"--nnodes 2 --master-addr a --node-rank x x.py":            "--node-rank",
		"--nnodes 2 --rdzv-endpoint a:99999 --rdzv-backend x x.py": "no endpoint",
	} {
		o, _ := parse(t, nil, strings.Fields(args)...)
		if _, err := o.place(t.Context(), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// TestTableInDocs: docs/torchrun.md ends with the table.
func TestTableInDocs(t *testing.T) {
	b, err := os.ReadFile("../../../docs/torchrun.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(b), Table()) {
		t.Errorf("docs/torchrun.md does not end with this table (make generate):\n%s", Table())
	}
}
