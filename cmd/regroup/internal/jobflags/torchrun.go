package jobflags

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/escape"
)

// Launch holds the launcher flags that the submitting command itself handles.
type Launch struct {
	Notes      []string     // about flags without effect
	Nodes      spec.Workers // of torchrun's --nnodes; zero = not given
	PerNode    string       // of torchrun's --nproc-per-node
	Counted    bool         // PerNode is derived from this machine's hardware
	Standalone bool         // with a server of its own
	join       []string     // what an agent is given that takes part in the same job by itself
}

// Here rejects options that a run with this machine as its only node does not support. The error
// has the commands that do it.
func (l Launch) Here() error {
	if l.Nodes.Min > 1 || (l.Nodes.Max > 1 && !l.Standalone) {
		return errcode.Errorf(errcode.Invalid, `--nnodes %d:%d: a run with a server of its own has one node. For more, start on one machine a server for all, and then on every machine an agent; SECRET is any word, the same for all, and HOST where the server is:
  REGROUP_SECRET=SECRET regroup up --no-agent --listen 0.0.0.0:4222
  REGROUP_SECRET=SECRET regroup agent --server nats://HOST:4222 %s`, l.Nodes.Min, l.Nodes.Max, escape.Shell(l.join))
	}
	return nil
}

// Remote rejects options that do not apply to other machines.
func (l Launch) Remote() error {
	if l.Counted {
		return errcode.Errorf(errcode.Invalid, "--nproc-per-node %s counts what this machine has, and the nodes are others: write a number", l.PerNode)
	}
	return nil
}

// Launch returns the launcher's options; call it after Spec.
func (f *Flags) Launch() Launch { return f.launch }

// torch applies torchrun's flags, and returns the command that they build from args.
func (f *Flags) torch(s *spec.Job, args []string, add func(path, message string)) []string {
	given := func(name string) (string, bool) { return *f.launchers[name], f.fs.Changed(name) }
	f.launch.Notes = append(f.launch.Notes, f.checkLaunchers(add)...)
	f.launch.Standalone = f.on("standalone")
	f.torchWorkers(s, add)
	if id, ok := given("rdzv-id"); ok && f.job.Name == "" {
		s.Name = strings.Trim(string(ident.NodeIDFrom(id)), "-")
	}
	if role, ok := given("role"); ok {
		s.Processes.Role = role
	}
	s.Processes.VirtualLocalRank = f.on("virtual-local-rank")
	if text, ok := given("shutdown-timeout"); ok {
		grace, err := ShutdownTimeout(text)
		if err != nil {
			add("--shutdown-timeout", err.Error())
		}
		s.Stop.Grace = cmp.Or(s.Stop.Grace, grace)
	}
	if conf, ok := given("rdzv-conf"); ok {
		var r spec.Rendezvous
		for _, x := range ReadConf(conf, &r) {
			add(x.Path, x.Message)
		}
		if s.Elastic.StartWithin == 0 {
			s.Elastic.StartWithin = r.JoinTimeout
		}
		if r.JoinTimeout = 0; r != (spec.Rendezvous{}) {
			f.launch.Notes = append(f.launch.Notes, "--rdzv-conf has an effect here for join_timeout alone: the scheduler knows who is there")
		}
	}
	return f.python(args)
}

// on reports whether a flag without a value was given.
func (f *Flags) on(name string) bool { return *f.launchers[name] == "true" }

// torchWorkers computes the workers from the nodes and the workers on each.
func (f *Flags) torchWorkers(s *spec.Job, add func(path, message string)) {
	if f.fs.Changed("j") && !f.shape(add) || !f.fs.Changed("nproc-per-node") && !f.fs.Changed("nnodes") {
		return
	}
	for _, name := range []string{"workers", "num-proc", "min-np", "max-np"} {
		if f.fs.Changed(name) {
			add("--"+name, "says the same as --nnodes and --nproc-per-node: give one or the other")
			return
		}
	}
	nodes := spec.Workers{Min: 1, Max: 1}
	if f.fs.Changed("nnodes") {
		text := *f.launchers["nnodes"]
		n, err := Workers(text)
		if err != nil || n.Min < 1 || n.Max < n.Min {
			add("--nnodes", strconv.Quote(text)+" is no number of nodes: write MIN:MAX, for example 2:4, or N")
			return
		}
		nodes, f.launch.Nodes = n, n
		if f.launch.Standalone {
			nodes.Max = nodes.Min // no other node can join
		}
	}
	f.launch.PerNode = cmp.Or(*f.launchers["nproc-per-node"], "1")
	per, counted, err := perNode(f.launch.PerNode, "/dev", os.Getenv)
	if err != nil {
		add("--nproc-per-node", err.Error())
		return
	}
	f.launch.Counted = counted
	f.launch.join = []string{"--nnodes", fmt.Sprintf("%d:%d", nodes.Min, nodes.Max), "--nproc-per-node", strconv.Itoa(per)}
	s.Workers = spec.Workers{Min: nodes.Min * per, Max: nodes.Max * per}
}

// shape makes torchrun's flags of -j of TorchX; false if they say something else already, or it is
// no shape.
func (f *Flags) shape(add func(path, message string)) bool {
	for _, name := range []string{"nnodes", "nproc-per-node", "workers", "num-proc", "min-np", "max-np"} {
		if f.fs.Changed(name) {
			add("--"+name, "says the same as -j: give one or the other")
			return false
		}
	}
	text := *f.launchers["j"]
	nodes, per, found := strings.Cut(text, "x")
	if n, err := Workers(nodes); !found || err != nil || n.Min < 1 || n.Max < n.Min {
		add("-j", strconv.Quote(text)+" is no number of nodes and workers: write NODESxWORKERS, for example 2x8, or MIN:NODESxWORKERS")
		return false
	}
	if _, err := PerNode(per); err != nil {
		add("-j", "its number of workers on a node "+err.Error())
		return false
	}
	_ = f.fs.Set("nnodes", nodes) // they are strings
	_ = f.fs.Set("nproc-per-node", per)
	return true
}

// ShutdownTimeout reads torchrun's --shutdown-timeout, which may be 0.
func ShutdownTimeout(text string) (spec.Duration, error) {
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || seconds < 0 {
		return 0, errcode.Errorf(errcode.Invalid, "is %q: write seconds", text)
	}
	return spec.Duration(max(seconds, 0.001) * float64(time.Second)), nil
}

// PerNode reads torchrun's --nproc-per-node for this machine.
func PerNode(text string) (int, error) {
	n, _, err := perNode(text, "/dev", os.Getenv)
	return n, err
}

// perNode parses torchrun's --nproc-per-node; counted = derived from this machine's hardware.
func perNode(text, dev string, getenv func(string) string) (n int, counted bool, err error) {
	switch text {
	case "cpu":
		return runtime.NumCPU(), true, nil
	case "gpu":
		if n = gpus(dev, getenv); n == 0 {
			return 0, true, errcode.Errorf(errcode.Invalid, "is gpu, and this machine has none that may be used: write cpu, or a number")
		}
		return n, true, nil
	case "auto":
		if n = gpus(dev, getenv); n == 0 {
			n = runtime.NumCPU()
		}
		return n, true, nil
	}
	if n, err = strconv.Atoi(text); err != nil || n < 1 {
		return 0, false, errcode.Errorf(errcode.Invalid, "is %q: write a number of at least 1, auto, cpu or gpu", text)
	}
	return n, false, nil
}

// gpus counts the GPUs that are visible to a program on this machine.
func gpus(dev string, getenv func(string) string) int {
	devices, err := filepath.Glob(filepath.Join(dev, "nvidia[0-9]*"))
	if err != nil {
		return 0
	}
	if visible := getenv("CUDA_VISIBLE_DEVICES"); visible != "" && len(devices) > 0 {
		all := strings.Split(visible, ",")
		if end := slices.IndexFunc(all, func(d string) bool { return strings.HasPrefix(strings.TrimSpace(d), "-") }); end >= 0 {
			all = all[:end] // as in CUDA: the devices that follow are hidden
		}
		return min(len(all), len(devices))
	}
	return len(devices)
}

// python builds the command as torchrun does: a script or a module is run with Python, unless
// --no-python is given. Without any of torchrun's flags the command is unchanged.
func (f *Flags) python(args []string) []string {
	with := false
	for _, x := range launcherFlags {
		with = with || (x.of == torchrun && !x.known && f.fs.Changed(x.Name()))
	}
	if len(args) == 0 || f.on("no-python") && !f.on("run-path") {
		return args
	}
	interpreter := cmp.Or(os.Getenv("PYTHON_EXEC"), "python3")
	switch {
	case f.on("module"):
		return append([]string{interpreter, "-u", "-m"}, args...)
	case f.on("run-path"), with && strings.HasSuffix(args[0], ".py"):
		return append([]string{interpreter, "-u"}, args...)
	}
	return args
}
