// Package spec defines the job specification: its types, their defaults, its validation with an
// error for each field, and the environment variables of workers. docs/jobfile.md and
// docs/job.schema.json are generated from it.
package spec

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Recovery is how a job's workers survive a fault.
type Recovery string

// Ways to run a worker.
const (
	// RecoveryRestart: any program. Each generation is new processes with torchrun's environment.
	RecoveryRestart Recovery = "restart"
	// RecoveryInProcess: programs that use the Regroup SDK. Survivors keep running.
	RecoveryInProcess Recovery = "in-process"
)

// Duration is a time span written as text, as time.ParseDuration reads it: 500ms, 30s, 1h.
type Duration time.Duration

// D returns the duration as a time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// MarshalText writes 30s.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads 30s.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%q is not a duration: write 500ms, 30s or 1h", b)
	}
	*d = Duration(v)
	return nil
}

// Job is what a user submits. Zero values mean the defaults that WithDefaults fills in.
//
// The tags of a field are its rules, see rule. The first paragraph of its comment is its
// description in docs/jobfile.md and docs/job.schema.json.
type Job struct {
	// Version of this format: `v1`.
	Version string `json:"version,omitempty" default:"v1" enum:"v1" error:"is not understood: write v1 or leave it out"`
	// Name of the job; its id begins with it. A label of RFC 1123 (lower-case letters, digits and
	// dashes) of at most 58 characters.
	Name string `json:"name" required:"true"`
	// Program and arguments, present on every node. `${local_rank}` in an argument is replaced with
	// recovery by restart.
	Command []string `json:"command" required:"true"`
	// Absolute directory in which workers run, present on every node. Default: that of the command
	// that submits the job on the machine of its nodes, else the agent's own; see
	// [containment.md](containment.md#folder-and-environment).
	Workdir string `json:"workdir,omitempty" pattern:"^/" error:"is not absolute: it must begin with / and exist on every node"`
	// Variables of the workers. Those that the agent sets are refused, see
	// [environment.md](environment.md).
	Env     map[string]string `json:"env,omitempty"`
	Workers Workers           `json:"workers"`
	// How workers survive a fault: `restart` (any program: all processes are started again) or
	// `in-process` (processes with the SDK keep running).
	Recovery Recovery `json:"recovery,omitempty" default:"restart" enum:"restart in-process" error:"is neither \"restart\" (any program) nor \"in-process\" (programs that use the SDK)"`
	Failures Failures `json:"failures"`
	Elastic  Elastic  `json:"elastic"`
	Health   Health   `json:"health,omitzero"`
	GPU      *GPU     `json:"gpu,omitempty" null:"has no fields: write gpu: {} for any GPU, or leave it out"` // nil = it asks for none
	Stop     Stop     `json:"stop"`
	Data     Data     `json:"data"`
	// Names and values for users; Regroup ignores them.
	Labels map[string]string `json:"labels,omitempty"`
	// Variables of the workers whose values are read on the node when a worker starts, and are kept
	// out of the job: `file:/path` is the content of a file, `env:NAME` a variable of the agent
	// that it passes on (`--allow-secret`). See [containment.md](containment.md).
	Secrets map[string]string `json:"secrets,omitempty"`

	Rendezvous *Rendezvous `json:"rendezvous,omitempty"` // only for jobs with self-registered nodes

	Processes Processes `json:"processes,omitzero"`
}

// Workers is the wanted number of workers of a job.
type Workers struct {
	// Minimum number for training: below it the job waits. With `rendezvous` leave `workers` out.
	Min int `json:"min" required:"true" min:"1"`
	// Maximum number. At least `workers.min`.
	Max int `json:"max" required:"true" max:"workers"`
}

// Failures is the failure budget of the whole job (torchrun's --max-restarts is per agent): more
// than Max failures within Per end it, and so do SameStep failures at one committed step, whatever
// the time between them. Planned changes never count.
type Failures struct {
	// More failures than this within `failures.per` end the job; planned changes never count. 0 =
	// the first one does.
	Max *int `json:"max,omitempty" default:"20" min:"0" max:"failures" error:"must be 0 (the first failure ends the job) or more"`
	// Length of that window.
	Per Duration `json:"per,omitempty" default:"1h"`
	// This many consecutive failures at one step end the job: the data or the code causes them.
	SameStep int `json:"sameStep,omitempty" default:"3" min:"1" max:"1000" error:"must be 1 to 1000: so many failures at one step end the job"`
}

// Attempts returns how many attempts the budget allows within its window.
func (f Failures) Attempts() int {
	if f.Max == nil {
		return 1
	}
	return *f.Max + 1
}

// Elastic holds the times of the rendezvous, and the bounds of generations.
type Elastic struct {
	// How long the round waits for further members once `workers.min` is reached.
	LastCall Duration `json:"lastCall,omitempty" default:"30s"`
	// Time for a member that peers have lost to rejoin.
	RejoinWithin Duration `json:"rejoinWithin,omitempty" default:"500ms"`
	// A job whose first generation has places and is not complete after this fails.
	StartWithin Duration `json:"startWithin,omitempty" default:"10m"`
	// A job that has run and is below `workers.min` for this long fails, as with Horovod's
	// `--elastic-timeout`.
	Timeout Duration `json:"timeout,omitempty" default:"10m"`
	// How long growing waits for others that arrive at the same time.
	Settle Duration `json:"settle,omitempty" default:"200ms"`
	// Generations after the first, planned ones included, as with Horovod's `--reset-limit`. 0 =
	// none. Default: no limit.
	ResetLimit *int `json:"resetLimit,omitempty" min:"0" error:"must be 0 (no regroup at all) or more; leave it out for no limit"`
	// Every generation has a multiple of this number of workers: 2 for a model with tensor
	// parallelism of 2, which cannot train with 3. `workers.min` and `workers.max` must be
	// multiples. Workers beyond a multiple wait as spare workers, and take the place of the first
	// that are lost. Not with `rendezvous`. 0 and 1 mean any number, the default.
	MultipleOf int `json:"multipleOf,omitempty" min:"0" max:"workers" error:"must be 0 or more: 2 allows 2, 4, 6 and so on"`
}

// Whole returns how many of n workers a generation may have: the largest multiple of MultipleOf
// that is at most n.
func (e Elastic) Whole(n int) int {
	if e.MultipleOf <= 1 {
		return n
	}
	return n - n%e.MultipleOf
}

// FreeRetries is how many consecutive generations may be lost to faults without progress before
// each counts as a failure and the next one is delayed: faults often come in pairs.
const FreeRetries = 2

const (
	firstBackOff   = 250 * time.Millisecond
	longestBackOff = 30 * time.Second
)

// BackOff returns the minimum delay between a fault and the seal of the generation after n without
// progress. A fault that breaks each generation at the same point would otherwise break thousands a
// minute. Most of elastic.timeout, within which the generation must be sealed, remains.
func (e Elastic) BackOff(n int) time.Duration {
	if n <= FreeRetries {
		return 0
	}
	d := longestBackOff
	if doublings := n - FreeRetries - 1; doublings < 16 {
		d = min(firstBackOff<<doublings, longestBackOff)
	}
	if e.Timeout > 0 {
		d = min(d, e.Timeout.D()/4)
	}
	return d
}

// Health configures when running workers count as hung.
type Health struct {
	// Workers hang if none makes a step for this long, and are replaced. It must be longer than the
	// longest pause of a healthy job (evaluation, checkpoint, compilation): ten times the longest
	// step, and at least 5m, is a good value. 0s = never, the default.
	//
	// The minimum is two intervals of the registry's writes of a step: one replica's steps protect
	// against another that misses them.
	Hang Duration `json:"hang,omitempty" min:"10s" error:"must be at least 10s, or 0 to take no job for hung: 5m, or ten times the longest step"`
}

// Stop is how workers are stopped.
type Stop struct {
	// Signal with which workers are stopped.
	Signal string `json:"signal,omitempty" default:"SIGTERM" enum:"SIGTERM SIGINT SIGUSR1 SIGUSR2 SIGHUP SIGQUIT"`
	// Time after the signal before they are killed.
	Grace Duration `json:"grace,omitempty" default:"30s"`
}

// Store is who listens at MASTER_ADDR and MASTER_PORT.
type Store string

// Ways to serve the store of torch.distributed.
const (
	// StoreAgent: an agent serves a TCPStore, which lives as long as the generation.
	StoreAgent Store = "agent"
	// StoreRank0: the port is free, and the worker with rank 0 may listen there.
	StoreRank0 Store = "rank0"
)

// Processes holds how the processes of workers are started, as flags of torchrun.
type Processes struct {
	// `ROLE_NAME` of the workers, as torchrun's `--role`.
	Role string `json:"role,omitempty" default:"default"`
	// Who listens at `MASTER_ADDR` and `MASTER_PORT`, with recovery by restart: `agent`, which
	// serves a store of torch.distributed as torchrun does, or `rank0`: the port is free for the
	// worker with rank 0.
	Store Store `json:"store,omitempty" default:"agent" enum:"agent rank0" error:"is neither \"agent\" (a store of torch.distributed is served) nor \"rank0\" (the port is free for the worker with rank 0)"`
	// As torchrun's `--virtual-local-rank`: `LOCAL_RANK` is 0 and `CUDA_VISIBLE_DEVICES` names the
	// one GPU of the worker.
	VirtualLocalRank bool `json:"virtualLocalRank,omitempty"`
	// Python interpreters that each node keeps started, with PyTorch imported, for workers that
	// take the place of others: those need not wait for Python. The command must begin with an
	// interpreter.
	Spares int `json:"spares,omitempty" min:"0" max:"1024" error:"must be 0 (none) to 1024"`
	// Modules that those interpreters import beside PyTorch, such as those of the script. They must
	// not start threads, use a GPU, or depend on ranks when they are imported.
	Preload []string `json:"preload,omitempty"`
	// Those interpreters also start CUDA and NCCL on the GPU of one worker each, as long as there
	// are no more of them than workers. A worker takes over the one of its GPU, so there should be
	// as many as a node has workers. Each needs some of its GPU's memory. See
	// [gpu.md](gpu.md#spares-on-gpus).
	SpareContexts bool `json:"spareContexts,omitempty"`
	// Before its first generation the job waits, on each node, until those interpreters are ready.
	// When one cannot get ready, the node's workers fail, and say why.
	AwaitSpares bool `json:"awaitSpares,omitempty"`
	// User that the workers run as: `name` or `name:group`, or their numbers. The agent must run as
	// root, or as that user. Default: `--default-user` of the agent, else its own user. See
	// [containment.md](containment.md).
	User string `json:"user,omitempty" pattern:"^[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?$" error:"is no user: write name or name:group"`
	// Encrypts what workers send each other, with programs that use the SDK or the backend
	// `regroup`: between processes that do not share memory. It costs throughput, see
	// [containment.md](containment.md).
	Encrypt bool `json:"encrypt,omitempty"`
	// What each worker may use, with the processes that it starts.
	Limits ProcessLimits `json:"limits,omitzero"`
	// Set by `regroup run` and `submit`, which replace what a file has: the name under which the
	// agents of their machine keep their working directory and environment for the workers. See
	// [containment.md](containment.md#folder-and-environment).
	SubmitEnvironment string `json:"submitEnvironment,omitempty" pattern:"^[0-9a-f]{32}$" error:"is no such name: leave it out, regroup run and submit set it"`
}

// ProcessLimits are the resources of one worker. A node that cannot enforce them starts no worker.
type ProcessLimits struct {
	// Bytes of memory, such as `24GiB` or `800MiB`; beyond it the kernel kills the worker, and the
	// cause is `oom`. Default: no limit.
	Memory Bytes `json:"memory,omitempty"`
	// Number of processes and threads. Default: no limit.
	PIDs int `json:"pids,omitempty" min:"1" max:"4194304" error:"must be 1 to 4194304: PyTorch has a few threads for each processor, and DataLoader workers are processes"`
	// Processors, such as 2 or 0.5. Default: no limit.
	CPUs float64 `json:"cpus,omitempty"`
	// Bytes of `/dev/shm`, such as `8GiB`. The workers of the job on a node then share one of their
	// own, which is gone with the last of them. Default: that of the node.
	Shm Bytes `json:"shm,omitempty"`
}

// Bytes is a size written as text: 24GiB, 800MiB, or a number of bytes.
type Bytes uint64

// bytesPattern matches what Bytes reads; none of it overflows.
var bytesPattern = regexp.MustCompile(`^([0-9]{1,15}|[0-9]{1,6}[KMGT]iB)$`)

// units of Bytes, the largest first.
var units = []struct {
	name  string
	bytes uint64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// String writes 24GiB.
func (b Bytes) String() string {
	for _, u := range units {
		if b > 0 && uint64(b)%u.bytes == 0 {
			return strconv.FormatUint(uint64(b)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatUint(uint64(b), 10)
}

// MarshalText writes 24GiB.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText reads 24GiB.
func (b *Bytes) UnmarshalText(text []byte) error {
	if !bytesPattern.Match(text) {
		return fmt.Errorf("%q is no size: write 24GiB or 800MiB", text)
	}
	number, factor := string(text), uint64(1)
	for _, u := range units {
		if n, ok := strings.CutSuffix(number, u.name); ok {
			number, factor = n, u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(number, 10, 63)
	*b = Bytes(n * factor)
	return err
}

// Data describes the data set for the ledger.
type Data struct {
	// Samples of one epoch, for the ledger. Default: as the workers report.
	Samples uint64 `json:"samples,omitempty" max:"samples"`
}

// WithDefaults returns the spec with every default filled in.
func (s Job) WithDefaults() Job {
	if s.Rendezvous != nil {
		own := *s.Rendezvous
		s.Rendezvous = &own
	}
	for i := range rules {
		rules[i].fill(&s)
	}
	if s.Rendezvous != nil && s.Workers == (Workers{}) {
		s.Workers = s.Rendezvous.workers()
	}
	return s
}
