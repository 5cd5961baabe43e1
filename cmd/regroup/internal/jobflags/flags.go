// Package jobflags defines the flags that describe a job without a file, for all commands that
// submit.
package jobflags

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
)

// Flags holds the given values.
type Flags struct {
	fs               *pflag.FlagSet
	job              spec.Job          // the fields that flags set as they are
	paths            map[string]string // of the field that a flag sets, by the flag's name
	workers          string
	env, secrets     []string
	gpu              string // its model
	memory           spec.GPUMemory
	num, least, most int                // of workers, of horovodrun's flags
	launchers        map[string]*string // values of the launcher flags, by name; nil = the command has none
	launch           Launch
}

// Add adds the flags to a command's set.
func Add(fs *pflag.FlagSet) *Flags {
	f := newFlags(fs)
	fs.StringVar(&f.job.Name, f.of("name", "name"), "", "name of the job (default: made from the command)")
	fs.StringVar(&f.workers, f.of("workers", "workers"), "1", "how many workers: MIN:MAX, or N for exactly N")
	fs.IntVar(&f.job.Elastic.MultipleOf, f.of("elastic.multipleOf", "multiple-of"), 0, "every generation has a multiple of so many workers; the others wait as spare workers (default: any number)")
	fs.StringVar(&f.gpu, f.of("gpu", "gpu"), "", "`MODEL` of the GPU that each worker has of its own: words of its name, such as H100, or any (default: workers get any slot)")
	fs.StringVar((*string)(&f.memory), f.of("gpu.memory", "gpu-memory"), "", "memory that this GPU has at least: 80GB, as it is sold, or 81559MiB, as nvidia-smi shows it")
	f.addSizes()
	f.shared()
	f.addLaunchers()
	return f
}

func newFlags(fs *pflag.FlagSet) *Flags {
	return &Flags{fs: fs, workers: "1", paths: map[string]string{}}
}

// of notes that a flag sets the field at a path, and returns its name.
func (f *Flags) of(path, name string) string {
	f.paths[name] = path
	return name
}

// shared adds the flags of all commands that start a job; with the names of torchrun and
// horovodrun, where they have them.
func (f *Flags) shared() {
	fs, s := f.fs, &f.job
	fs.StringVar((*string)(&s.Recovery), f.of("recovery", "recovery"), "", "restart (any program, the default) or in-process (programs that use the SDK)")
	fs.Var(optional{&s.Failures.Max}, f.of("failures.max", "max-restarts"), "failures within --max-restarts-per that the job survives; planned changes do not count")
	fs.Var((*span)(&s.Failures.Per), f.of("failures.per", "max-restarts-per"), "the time within which failures count, such as 10m or 1h")
	fs.StringArrayVar(&f.env, f.of("env", "env"), nil, "variable of the workers as `NAME=VALUE`; may be repeated")
	fs.StringArrayVar(&f.secrets, f.of("secrets", "secret"), nil, "secret variable of the workers as `NAME=SOURCE`, which is file:/path on the node or env:NAME of the agent; may be repeated")
	fs.StringVar(&s.Workdir, f.of("workdir", "workdir"), "", "directory in which the workers run, present on every node (default: this one, or that of a server's agents)")
	fs.Uint64Var(&s.Data.Samples, f.of("data.samples", "samples"), 0, "samples of one epoch, for the account of samples (default: as the workers report)")
	fs.DurationVar((*time.Duration)(&s.Stop.Grace), f.of("stop.grace", "stop-grace"), 0, "how long workers may take to stop before they are killed")
	fs.IntVar(&s.Failures.SameStep, f.of("failures.sameStep", "same-step"), 0, "failures in a row at one step after which the data or the code is to blame")
	fs.Var(optional{&s.Elastic.ResetLimit}, f.of("elastic.resetLimit", "reset-limit"), "regroups after the first generation, planned ones included (default: no limit)")
	fs.Var((*span)(&s.Elastic.Timeout), f.of("elastic.timeout", "elastic-timeout"), "how long a job that has run may be below min")
	fs.Var((*span)(&s.Elastic.StartWithin), f.of("elastic.startWithin", "start-timeout"), "how long the first generation may take once there is room")
	fs.Var((*span)(&s.Health.Hang), f.of("health.hang", "hang"), "no step for so long means that workers hang; a good value is 5m or ten times the longest step (default: never)")
	fs.IntVar(&s.Processes.Spares, f.of("processes.spares", "spares"), 0, "Python interpreters that each node keeps started, with PyTorch imported, for workers that take the place of others")
	fs.StringSliceVar(&s.Processes.Preload, f.of("processes.preload", "preload"), nil, "modules that spares import beside PyTorch, separated by commas")
	fs.BoolVar(&s.Processes.SpareContexts, f.of("processes.spareContexts", "spare-contexts"), false, "spares have started CUDA and NCCL, each on the GPU of one worker")
	fs.BoolVar(&s.Processes.AwaitSpares, f.of("processes.awaitSpares", "await-spares"), false, "the job begins when the spares of its nodes are ready")
	fs.StringVar((*string)(&s.Processes.Store), f.of("processes.store", "store"), "", "who listens at MASTER_ADDR:MASTER_PORT: agent (a store of torch.distributed), or rank0 (the worker with rank 0)")
	for name, path := range f.paths {
		if text := spec.Default(path); text != "" && name != "recovery" { // whose usage names it
			fs.Lookup(name).DefValue = text
		}
	}
}

// Spec returns the spec of a job that runs args. The error is Invalid with every field error, each
// named by its flag.
func (f *Flags) Spec(args []string) (spec.Job, error) {
	s, bad := f.fill(args)
	for _, x := range s.WithDefaults().Check() {
		x.Path = f.flagOf(x.Path)
		if !slices.Contains(bad, x) { // --workers N is two fields
			bad = append(bad, x)
		}
	}
	return s, errcode.Refuse(bad)
}

// fill builds a spec of the given values, without validation.
func (f *Flags) fill(args []string) (spec.Job, []spec.FieldError) {
	var bad []spec.FieldError
	add := func(path, message string) { bad = append(bad, spec.FieldError{Path: path, Message: message}) }
	f.launch = Launch{}
	s := f.job
	s.Command = args
	workers, err := Workers(f.workers)
	if err != nil {
		add("--workers", err.Error())
		workers = spec.Workers{Min: 1, Max: 1} // reported once
	}
	s.Workers = workers
	if w, given := f.sizes(add); given {
		s.Workers = w
	}
	if f.fs.Changed("same-step") && s.Failures.SameStep == 0 {
		add("--same-step", "is 0, must be at least 1")
	}
	for name, d := range map[string]spec.Duration{"elastic-timeout": s.Elastic.Timeout, "start-timeout": s.Elastic.StartWithin, "max-restarts-per": s.Failures.Per} {
		if f.fs.Changed(name) && d == 0 {
			add("--"+name, "is 0, must be more: write seconds, or 500ms, 30s, 1h")
		}
	}
	s.GPU = f.gpus(add)
	if s.Workdir != "" {
		abs, err := filepath.Abs(s.Workdir)
		if err != nil {
			add("--workdir", err.Error())
		}
		s.Workdir = abs
	}
	for _, e := range f.env {
		name, value, ok := strings.Cut(e, "=")
		if !ok {
			add("--env", strconv.Quote(e)+" has no value: write NAME=VALUE")
			continue
		}
		if s.Env == nil {
			s.Env = map[string]string{}
		}
		s.Env[name] = value
	}
	for _, e := range f.secrets {
		name, source, ok := strings.Cut(e, "=")
		if !ok {
			add("--secret", "one has no source: write NAME=file:/path or NAME=env:NAME")
			continue
		}
		if s.Secrets == nil {
			s.Secrets = map[string]string{}
		}
		s.Secrets[name] = source
	}
	if f.launchers != nil {
		s.Command = f.torch(&s, args, add)
		f.horovod(&s, add)
	}
	s.Name = cmp.Or(s.Name, NameOf(s.Command))
	if f.launch.Nodes.Max > 1 {
		f.launch.join = f.joining(s.Name, s.Command)
	}
	return s, bad
}

// gpus returns what the flags ask for; nil = none of them is given.
func (f *Flags) gpus(add func(path, message string)) *spec.GPU {
	if !f.fs.Changed("gpu") && !f.fs.Changed("gpu-memory") {
		return nil
	}
	for name, value := range map[string]string{"gpu": f.gpu, "gpu-memory": string(f.memory)} {
		if f.fs.Changed(name) && value == "" {
			add("--"+name, "is empty: leave it out, or write --gpu any")
		}
	}
	g := &spec.GPU{Model: f.gpu, Memory: f.memory}
	if strings.EqualFold(g.Model, "any") {
		g.Model = ""
	}
	return g
}

// flagOf names the flag to which a path of the spec belongs.
func (f *Flags) flagOf(path string) string {
	for _, name := range []string{"min-np", "max-np", "num-proc"} {
		if f.fs.Changed(name) && sizePaths[name] == path {
			return "--" + name
		}
	}
	best := ""
	for name, p := range f.paths {
		if (path == p || strings.HasPrefix(path, p+".")) && len(p) > len(f.paths[best]) {
			best = name
		}
	}
	switch {
	case best == "":
		return path
	case best == "env":
		return "--env " + strings.TrimPrefix(path, "env.")
	case best == "secret":
		return "--secret " + strings.TrimPrefix(path, "secrets.")
	}
	return "--" + best
}

// Workers reads MIN:MAX, or N for both.
func Workers(text string) (spec.Workers, error) {
	low, high, ranged := strings.Cut(text, ":")
	if !ranged {
		high = low
	}
	lo, err1 := strconv.Atoi(low)
	hi, err2 := strconv.Atoi(high)
	if err1 != nil || err2 != nil {
		return spec.Workers{}, errcode.Errorf(errcode.Invalid, "%q is no number of workers: write MIN:MAX, for example 2:4, or N", text)
	}
	if lo > hi {
		return spec.Workers{}, errcode.Errorf(errcode.Invalid, "%s has more at least than at most: write %d:%d", text, hi, lo)
	}
	return spec.Workers{Min: lo, Max: hi}, nil
}
