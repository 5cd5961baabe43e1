package serve

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/agent"
	"github.com/regroup-io/regroup/agent/gpus"
	"github.com/regroup-io/regroup/agent/logs"
	"github.com/regroup-io/regroup/agent/proc"
	"github.com/regroup-io/regroup/agent/statedir"
	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/jobflags"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
)

// AgentConfig is the configuration of an agent from REGROUP_AGENT_* variables.
type AgentConfig struct {
	Join      string        `envconfig:"JOIN" desc:"agent alone: join token of regroup auth issue agent NODE --token, @FILE or - for standard input; empty = the one of an earlier start, if no server is given"`
	Node      string        `envconfig:"NODE" flag:"node" usage:"name of this node (%); default: the host's" desc:"name of this node; empty = the host's name"`
	Slots     int           `envconfig:"SLOTS" flag:"slots" usage:"workers that fit on this node (%); default: one per GPU, or without one per core" desc:"workers that fit on this node; 0 = one per GPU, or without one per core"`
	GPUs      string        `envconfig:"GPUS" flag:"gpus" usage:"'WHICH' GPUs the workers of this node may use: auto, none, or names as in CUDA_VISIBLE_DEVICES; with as many slots as GPUs each slot has one (%); default: auto for an agent that is not of one job, else workers see all" desc:"GPUs that workers of this node may use: auto, none, or names as in CUDA_VISIBLE_DEVICES; empty = auto for an agent that is not of one job, else workers see all"`
	GPUPoll   time.Duration `envconfig:"GPU_POLL" flag:"gpu-poll" usage:"time between two looks at the state of the GPUs, by nvidia-smi; 0 = they are not watched (%)" default:"15s" desc:"time between two looks at the state of the GPUs, by nvidia-smi; 0 = they are not watched"`
	GPULog    string        `envconfig:"GPU_LOG" flag:"gpu-log" usage:"'FILE' in which the kernel says what the driver of the GPUs reports (Xid); empty = it is not read (%)" default:"/dev/kmsg" desc:"file in which the kernel says what the driver of the GPUs reports (Xid); empty = it is not read"`
	GPUErrors uint64        `envconfig:"GPU_ERRORS" flag:"gpu-errors" usage:"errors of a GPU's memory that were not corrected, since its driver was loaded, beyond which it is at fault (%)" default:"10" desc:"errors of a GPU's memory that were not corrected, since its driver was loaded, beyond which it is at fault"`
	Advertise string        `envconfig:"ADVERTISE" flag:"advertise" usage:"host under which workers of other nodes reach this one (%)" desc:"host under which workers of other nodes reach this one; empty = that from which it reaches the broker"`
	DataPorts string        `envconfig:"DATA_PORTS" flag:"data-ports" usage:"low-high: ports on which workers listen (%); default: any" desc:"ports on which workers listen, low-high; empty = any"`
	Heartbeat time.Duration `envconfig:"HEARTBEAT" flag:"heartbeat" usage:"time between heartbeats (%)" default:"500ms" desc:"time between heartbeats"`

	Preflight       bool   `envconfig:"PREFLIGHT" flag:"preflight" usage:"measure the GPUs before slots are offered; one that fails, or is far slower than others of its model, is a slot in quarantine (%)" desc:"measure the GPUs before slots are offered; one that fails, or is far slower than others of its model, is a slot in quarantine"`
	PreflightPython string `envconfig:"PREFLIGHT_PYTHON" flag:"preflight-python" usage:"'PYTHON' with a torch for CUDA that measures them (%); default: $PYTHON_EXEC, or python3" desc:"interpreter with a torch for CUDA that measures them; empty = $PYTHON_EXEC, or python3"`

	DepartWithin  time.Duration `envconfig:"DEPART_WITHIN" flag:"depart-within" usage:"told to stop, how long an agent lets its work move to other nodes before workers are stopped (%)" default:"10s" desc:"told to stop, how long an agent lets its work move to other nodes before workers are stopped; 0 = not at all"`
	PreemptSignal string        `envconfig:"PREEMPT_SIGNAL" flag:"preempt-signal" usage:"signal that announces that this node will be taken away; empty = none (%)" default:"SIGUSR1" desc:"signal that announces that this node will be taken away; empty = none"`
	PreemptFile   string        `envconfig:"PREEMPT_FILE" flag:"preempt-file" usage:"file whose appearance announces it (%)" desc:"file whose appearance announces it; empty = none"`
	PreemptURL    string        `envconfig:"PREEMPT_URL" flag:"preempt-url" usage:"URL that answers 2xx once it is announced (%)" desc:"URL that answers 2xx once it is announced; empty = none"`

	Checkpoints     string `envconfig:"CHECKPOINTS" flag:"checkpoints" usage:"'DIR' with a folder regroup-checkpoints, of jobs that recover in the process and name none (%); default: the state folder, which workers of other users cannot reach" desc:"where there is a folder regroup-checkpoints, of jobs that recover in the process and name none; empty = the state folder, which workers of other users cannot reach"`
	CheckpointSpace int64  `envconfig:"CHECKPOINT_SPACE" flag:"checkpoint-space" usage:"'GIB' of disk that they take at most, all jobs of the node together; 0 = none are made (%)" default:"10" desc:"GiB of disk that they take at most, all jobs of the node together; 0 = none are made"`
	CheckpointFree  int64  `envconfig:"CHECKPOINT_FREE" flag:"checkpoint-free" usage:"'GIB' that they leave free on the disk, at most a tenth of it (%)" default:"10" desc:"GiB that they leave free on the disk, at most a tenth of it"`

	DefaultUser  string   `envconfig:"DEFAULT_USER" flag:"default-user" usage:"'USER' or USER:GROUP that workers run as whose job names none; with it no worker runs as root (%); default: the agent's user" desc:"user, or user:group, that workers run as whose job names none (processes.user); with it no worker runs as root; empty = the agent's user"`
	AllowGroups  []string `envconfig:"ALLOW_GROUPS" flag:"allow-group" usage:"beside a default user: 'GROUP' that jobs may name for users that are not in it; may be repeated (%)" desc:"beside a default user: groups, separated by commas, that jobs may name for users that are not in them (processes.user: USER:GROUP)"`
	AllowSecrets []string `envconfig:"ALLOW_SECRETS" flag:"allow-secret" usage:"'NAME' of a variable of the agent that jobs may take as a secret; may be repeated (%)" desc:"names of the agent's variables, separated by commas, that jobs may take as secrets; other jobs do not inherit them"`
}

// LoadAgent reads the environment.
func LoadAgent() (AgentConfig, error) {
	var a AgentConfig
	return a, boot.Section("AGENT", &a)
}

// Flags adds the agent's flags.
func (a *AgentConfig) Flags(fs *pflag.FlagSet) { boot.Flags(fs, "AGENT", a) }

// joinFlag adds the flag for a join token.
func (a *AgentConfig) joinFlag(fs *pflag.FlagSet) {
	fs.StringVar(&a.Join, "join", a.Join, "join `TOKEN` of regroup auth issue agent NODE --token, @FILE that has it, or - for standard input; a token itself is seen by all users of the machine (REGROUP_AGENT_JOIN)")
	fs.Lookup("join").DefValue = "" // the help text shows no secret
}

// Filled returns the configuration with defaults from this machine.
func (a AgentConfig) Filled() AgentConfig {
	if a.Node == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "node"
		}
		a.Node = string(ident.NodeIDFrom(host))
	}
	if a.Slots == 0 {
		a.Slots = runtime.NumCPU()
	}
	return a
}

// NewAgent returns the agent of a node with real processes. Its state is in a directory of the
// node.
func NewAgent(p *boot.Process, a AgentConfig) (*agent.Agent, error) {
	return newAgent(p, a, agentOptions{})
}

// agentOptions are what commands need of an agent, see agent.Options.
type agentOptions struct {
	join      *agent.Joining
	output    func(logs.Line)
	errorFile func(localRank int, g ident.Generation) string
	measure   *measureOnce // of earlier incarnations; nil = this is the only one
}

func newAgent(p *boot.Process, a AgentConfig, o agentOptions) (*agent.Agent, error) {
	var found []devices.GPU
	if a.GPUs != "" {
		var err error
		if found, err = gpus.Find(context.Background(), a.GPUs); err != nil {
			return nil, err
		}
		a.Slots = cmp.Or(a.Slots, len(found))
		if n := len(found); n > 0 && n != a.Slots {
			p.Logger.Info("slots have no GPUs of their own: there are not as many", "gpus", n, "slots", a.Slots)
		}
	}
	measure, err := cmp.Or(o.measure, &measureOnce{}).of(a, o, found)
	if err != nil {
		return nil, err
	}
	derived := a.Advertise == ""
	server := p.Config.Server
	if a = a.Filled(); derived {
		a.Advertise = Advertised(server)
	}
	if err := ident.NodeID(a.Node).Check(); err != nil { // it becomes the name of a directory
		return nil, err
	}
	// Absolute, because workers have other working directories.
	dir, err := filepath.Abs(statedir.Of(p.Config.StateDir, a.Node))
	if err != nil {
		return nil, err
	}
	if a.Checkpoints != "" {
		if a.Checkpoints, err = filepath.Abs(a.Checkpoints); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if most := int64(1) << 20; a.CheckpointSpace < 0 || a.CheckpointSpace > most {
		return nil, errcode.Errorf(errcode.Invalid, "--checkpoint-space: %d GiB are not within 0 to %d", a.CheckpointSpace, most)
	}
	if a.CheckpointFree < 0 {
		return nil, errcode.Errorf(errcode.Invalid, "--checkpoint-free: %d GiB is negative", a.CheckpointFree)
	}
	if a.GPUPoll < 0 || a.GPUPoll > 0 && a.GPUPoll < time.Second {
		return nil, errcode.Errorf(errcode.Invalid, "--gpu-poll: %v is neither 0 nor at least 1s: nvidia-smi takes part of that", a.GPUPoll)
	}
	driver, err := proc.New(proc.Options{StateDir: dir, AllowSecrets: a.AllowSecrets, Guard: guardCommand})
	if err != nil {
		return nil, err
	}
	var reachable func() error
	if derived {
		reachable = func() error { return isOurs(a.Advertise, server) }
	}
	logger := p.Logger.With("node", a.Node)
	return agent.New(agent.Options{
		WatchGPUs: a.watchGPUs(found, logger),
		Reachable: reachable, Version: p.Config.Version,
		Node: ident.NodeID(a.Node), Slots: a.Slots, GPUs: found, Preflight: measure, Advertise: a.Advertise, DataPorts: a.DataPorts, DefaultUser: a.DefaultUser, AllowGroups: a.AllowGroups, StateDir: dir, Checkpoints: a.Checkpoints, CheckpointSpace: a.CheckpointSpace << 30, CheckpointFree: min(a.CheckpointFree, 1<<20) << 30,
		Ports: p.Ports, Driver: driver, Join: o.join, Config: agent.Config{
			Logs:      logs.Config{Rate: p.Conn.Amounts().Bytes / 2}, // the rest is for all else that it publishes
			Heartbeat: a.Heartbeat, DepartWithin: a.DepartWithin, PreemptFile: a.PreemptFile, PreemptURL: a.PreemptURL,
		},
		Output: func(l logs.Line) {
			p.Output.Line(l)
			if o.output != nil {
				o.output(l)
			}
		}, ErrorFile: o.errorFile, Reported: p.Meter.Report, Observe: p.Recorder.Record, Logger: logger,
	})
}

// watchGPUs returns what watches the GPUs of a node; nil = nothing does.
func (a AgentConfig) watchGPUs(all []devices.GPU, logger *slog.Logger) func(context.Context, func([]devices.GPU, bool)) {
	if len(all) == 0 || a.GPUPoll == 0 {
		return nil
	}
	h := gpus.Health{Every: a.GPUPoll, Log: a.GPULog, Uncorrected: a.GPUErrors, Logger: logger}
	return func(ctx context.Context, changed func([]devices.GPU, bool)) { gpus.Watch(ctx, h, all, changed) }
}

// Heed passes the signal that announces the end of the node to an agent, until off is called.
func (a AgentConfig) Heed(run *agent.Agent) (off func(), err error) {
	if a.PreemptSignal == "" {
		return func() {}, nil
	}
	return boot.OnSignal(a.PreemptSignal, func() { run.Depart(events.Departure{Reason: "preempted: " + a.PreemptSignal}) })
}

// AgentCommand is `regroup agent`.
func AgentCommand(c *boot.Config, shared *AgentConfig) *cobra.Command {
	var join *jobflags.Join
	cmd := &cobra.Command{
		Use: "agent [--join-job ID [flags] -- COMMAND [ARG...]]", Short: "Run this node's agent: it starts and watches workers", Args: cobra.ArbitraryArgs,
		Long: `Runs this node's agent. It gets its work from the scheduler, or with --join-job takes part in one job that is not
scheduled, as torchrun's agents do: started on every machine with the same flags, by hand, by Slurm (srun) or by a script. The
first one creates the job. The agent then ends with the job's outcome, or leaves it when it is interrupted. With --join it takes the
name of its node, the address of the brokers and its credentials from a token, and keeps them in its state folder for later starts.
With none of these, and no server named, it is an agent of the regroup up that runs here.`,
		Example: `  regroup agent --server nats://broker:4222
  regroup agent --join @node-a.token
  regroup agent --node gpu-7 --slots 8 --advertise 10.0.0.7 \
      --data-ports 29400-29500
  regroup agent --join-job mnist --nnodes 2:4 --nproc-per-node 2 \
      -- python train.py
  srun regroup agent --join-job $SLURM_JOB_NAME --nnodes $SLURM_NNODES \
      --rdzv-conf last_call_timeout=10 -- python train.py`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if join.Run == "" && len(args) > 0 {
				return errcode.Errorf(errcode.Invalid, "a command without a job: name it with --join-job")
			}
			own := c.Service()
			if join.Run != "" { // started by a user, as torchrun is
				own = *c
			}
			own, a, follower, err := joined(cmd, own, *shared, time.Now())
			if err != nil {
				return err
			}
			var current atomic.Pointer[agent.Agent]
			ctx, stop := boot.Interruptible(cmd.Context(), func() {
				if run := current.Load(); run != nil {
					run.Kill()
				}
			})
			defer stop()
			var found owner
			if own.Server == "" {
				if own.Wait, err = command.Within(cmd, own.Wait); err != nil {
					return err
				}
				if own, found, err = upHere(ctx, own); err != nil {
					return err
				}
			}
			if own, err = own.AsNode(a.Filled().Node); err != nil {
				return err
			}
			p, err := open(ctx, cmd, own, boot.NameAgent)
			if err != nil {
				return err
			}
			defer p.Close()
			if follower != nil {
				defer following(ctx, *follower, p.Logger)()
			}
			return whileHere(ctx, p, found, func(ctx context.Context) error {
				if join.Run != "" {
					return joinJob(ctx, p, a, join, args, consoleOf(cmd), current.Store)
				}
				return runAgent(ctx, p, a, &current)
			})
		},
	}
	shared.Flags(cmd.Flags())
	shared.joinFlag(cmd.Flags())
	join = jobflags.AddJoin(cmd.Flags())
	return cmd
}

// runAgent runs the agent of a node, and another incarnation of it when that was declared lost.
func runAgent(ctx context.Context, p *boot.Process, a AgentConfig, current *atomic.Pointer[agent.Agent]) error {
	a.GPUs = cmp.Or(a.GPUs, gpus.Auto)
	var measure measureOnce
	return p.WithHealth(ctx, nil, func(ctx context.Context) error {
		return agent.RunIncarnations(ctx, func() (func(context.Context) error, error) {
			run, err := newAgent(p, a, agentOptions{measure: &measure})
			if err != nil {
				return nil, err
			}
			off, err := a.Heed(run)
			if err != nil {
				return nil, err
			}
			current.Store(run)
			p.Logger.Info("agent runs", "node", a.Filled().Node, "slots", run.Slots(), "incarnation", string(run.Incarnation()))
			return func(ctx context.Context) error {
				defer off()
				return run.Run(ctx)
			}, nil
		})
	})
}
