package torchrun

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/jobflags"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
)

// options are the values of the flags, from the command line or the environment.
type options struct {
	fs     *pflag.FlagSet
	values map[string]*string // of torchrun's flags, by name
	given  map[string]bool    // on the command line or in the environment
	spares int
	load   []string
	warm   bool // spares have a CUDA context
	await  bool // for spares, before the first generation
	pages  bool // serve the dashboard too

	companion int // descriptor for a foreign agent, see companion; 0 = there is none
}

// add adds torchrun's flags to a command's set, and our own. As in torchrun, _ may be written for -
// and a name may be cut off where it is clear.
func add(fs *pflag.FlagSet) *options {
	o := &options{fs: fs, values: map[string]*string{}, given: map[string]bool{}}
	for _, f := range jobflags.TorchrunFlags {
		o.values[f.Name()] = f.Add(fs, f.Default, usage(f.Torchrun))
	}
	fs.IntVar(&o.spares, "spares", 0, "Regroup's own: Python interpreters that each node keeps started, with PyTorch imported, for workers that take the place of others")
	fs.StringSliceVar(&o.load, "preload", nil, "Regroup's own: modules that spares import beside PyTorch, separated by commas")
	fs.BoolVar(&o.warm, "spare-contexts", false, "Regroup's own: spares have started CUDA and NCCL, each on the GPU of one worker")
	fs.BoolVar(&o.await, "await-spares", false, "Regroup's own: the job begins when the spares of its nodes are ready")
	fs.BoolVar(&o.pages, "dashboard", false, "Regroup's own: the node that serves the run serves the dashboard too, at a free port, and prints a link to it")
	fs.IntVar(&o.companion, "companion", 0, "the descriptor at which a foreign agent reads changes of its node")
	_ = fs.MarkHidden("companion")
	fs.SetNormalizeFunc(normalize)
	return o
}

func usage(a jobflags.Answer) string {
	switch a.Outcome {
	case jobflags.Noted:
		return "has no effect: " + a.Does
	case jobflags.Refused:
		return "is refused; instead: " + a.Does
	}
	return a.Does
}

func normalize(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	name = strings.ReplaceAll(name, "_", "-")
	found := ""
	for _, f := range jobflags.TorchrunFlags {
		switch n := f.Name(); {
		case n == name:
			return pflag.NormalizedName(name)
		case len(name) > 1 && strings.HasPrefix(n, name) && found == "":
			found = n
		case len(name) > 1 && strings.HasPrefix(n, name):
			return pflag.NormalizedName(name) // it may be one of several
		}
	}
	return pflag.NormalizedName(cmp.Or(found, name))
}

// read completes the flags by PET_ variables, which torchrun reads for those that are not given.
func (o *options) read(lookup func(string) (string, bool)) {
	for _, f := range jobflags.TorchrunFlags {
		name := f.Name()
		if o.fs.Changed(name) {
			o.given[name] = true
			continue
		}
		text, ok := lookup("PET_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
		if !ok && name == "shutdown-timeout" {
			text, ok = lookup("TORCH_ELASTIC_SHUTDOWN_TIMEOUT")
		}
		if !ok && name == "log-line-prefix-template" {
			text, ok = lookup("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")
		}
		if !ok || text == "" && f.Plain() {
			continue
		}
		if f.Plain() { // set and not 0
			text = strconv.FormatBool(text != "0")
		}
		*o.values[name], o.given[name] = text, true
	}
}

func (o *options) text(name string) string { return *o.values[name] }
func (o *options) on(name string) bool     { return o.text(name) == "true" }

// notes are about flags without effect.
func (o *options) notes() (all []string) {
	for _, f := range jobflags.TorchrunFlags {
		if o.given[f.Name()] && f.Torchrun.Outcome == jobflags.Noted {
			all = append(all, fmt.Sprintf("--%s has no effect here: %s", f.Name(), f.Torchrun.Does))
		}
	}
	_, _, more := jobflags.SplitConf(o.text("rdzv-conf"))
	return append(all, more...)
}

// forever is the window of failures: torchrun's restarts never expire.
const forever = 10 * 365 * 24 * time.Hour

// job builds the job's specification, with its defaults. The error is Invalid with all findings.
func (o *options) job(args []string) (spec.Job, error) {
	var bad []spec.FieldError
	find := func(flag, message string) { bad = append(bad, spec.FieldError{Path: "--" + flag, Message: message}) }
	for _, f := range jobflags.TorchrunFlags {
		if o.given[f.Name()] && f.Torchrun.Outcome == jobflags.Refused {
			find(f.Name(), "is refused; instead: "+f.Torchrun.Does)
		}
	}
	r := &spec.Rendezvous{}
	nodes, err := jobflags.Workers(o.text("nnodes"))
	if err != nil || nodes.Min < 1 || nodes.Max < nodes.Min {
		find("nnodes", strconv.Quote(o.text("nnodes"))+" is no number of nodes: write MIN:MAX, for example 2:4, or N")
		nodes = spec.Workers{Min: 1, Max: 1}
	}
	r.Nodes = spec.NodeRange{Min: nodes.Min, Max: nodes.Max}
	if o.single() {
		r.Nodes = spec.NodeRange{Min: 1, Max: 1}
	}
	if r.WorkersPerNode, err = jobflags.PerNode(o.text("nproc-per-node")); err != nil {
		find("nproc-per-node", err.Error())
		r.WorkersPerNode = 1
	}
	conf, _, _ := jobflags.SplitConf(o.text("rdzv-conf"))
	bad = append(bad, jobflags.ReadConf(conf, r)...)
	if o.on("module") && o.on("no-python") {
		find("module", "and --no-python exclude each other")
	}
	s := spec.Job{
		Name: o.name(args), Command: o.command(args), Recovery: spec.RecoveryRestart, Rendezvous: r,
		Failures:  spec.Failures{Per: spec.Duration(forever)},
		Processes: spec.Processes{Role: o.text("role"), VirtualLocalRank: o.on("virtual-local-rank"), Spares: o.spares, Preload: o.load, SpareContexts: o.warm, AwaitSpares: o.await},
	}
	restarts, err := strconv.Atoi(o.text("max-restarts"))
	if err != nil || restarts < 0 {
		find("max-restarts", "is "+strconv.Quote(o.text("max-restarts"))+": write a number of at least 0")
	}
	s.Failures.Max = &restarts
	if s.Stop.Grace, err = jobflags.ShutdownTimeout(o.text("shutdown-timeout")); err != nil {
		find("shutdown-timeout", err.Error())
	}
	if _, err := o.signals(); err != nil {
		find("signals-to-handle", err.Error())
	}
	var wrong *consoleError
	if _, err := newConsole(o, command.Env{Getenv: os.Getenv}, screen.Auto, "", ""); errors.As(err, &wrong) {
		bad = append(bad, wrong.finding)
	}
	s.Env = map[string]string{"TORCHELASTIC_SIGNALS_TO_HANDLE": o.text("signals-to-handle")}
	if o.companion != 0 {
		// Foreign agents are asked how many nodes wait, and restart the group for them themselves.
		s.Elastic.Settle = spec.Duration(forever)
	}
	s = s.WithDefaults()
	for _, x := range s.Check() {
		switch {
		case x.Path == "workers" || strings.HasPrefix(x.Path, "workers."): // they follow from the nodes
		case x.Path == "command":
			bad = append(bad, spec.FieldError{Path: "training_script", Message: "is missing: give the script and its arguments"})
		default:
			x.Path = flagOf(x.Path)
			bad = append(bad, x)
		}
	}
	return s, errcode.Refuse(bad)
}

// flagOf names the flag that sets a field.
func flagOf(path string) string {
	all := map[string]string{
		"processes.spares": "--spares", "processes.preload": "--preload", "processes.spareContexts": "--spare-contexts", "processes.awaitSpares": "--await-spares", "processes.role": "--role", "failures.max": "--max-restarts",
		"stop.grace": "--shutdown-timeout", "rendezvous.workersPerNode": "--nproc-per-node", "rendezvous.nodes": "--nnodes", "name": "--rdzv-id",
	}
	for _, prefix := range slices.Sorted(maps.Keys(all)) {
		if rest, ok := strings.CutPrefix(path, prefix); ok {
			return all[prefix] + rest
		}
	}
	return path
}

// single reports whether this node is the only one: no other could find its server.
func (o *options) single() bool {
	_, high, ranged := strings.Cut(o.text("nnodes"), ":")
	if !ranged {
		high = o.text("nnodes")
	}
	return o.on("standalone") || high == "1"
}

// name is that of the job.
func (o *options) name(args []string) string {
	if id := o.text("rdzv-id"); id != "none" && id != "" {
		return strings.Trim(string(ident.NodeIDFrom(id)), "-")
	}
	return jobflags.NameOf(o.command(args))
}

// command is what a worker runs, as in torchrun.
func (o *options) command(args []string) []string {
	if len(args) == 0 || o.on("no-python") && !o.on("run-path") {
		return args
	}
	python := os.Getenv("PYTHON_EXEC")
	if python == "" {
		python = "python3"
	}
	if o.on("module") {
		return append([]string{python, "-u", "-m"}, args...)
	}
	return append([]string{python, "-u"}, args...)
}

// signals are those that end the job.
func (o *options) signals() ([]os.Signal, error) {
	var all []os.Signal
	for name := range strings.SplitSeq(o.text("signals-to-handle"), ",") {
		s := unix.SignalNum(strings.TrimSpace(name))
		if s == 0 || s == syscall.SIGKILL || s == syscall.SIGSTOP {
			return nil, fmt.Errorf("%q is no signal that can be handled: write SIGTERM, SIGINT, SIGUSR1 or others, separated by commas", name)
		}
		all = append(all, s)
	}
	return all, nil
}
