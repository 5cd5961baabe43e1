package jobflags

// Outcome is how a command takes a flag of another launcher.
type Outcome int

// Outcomes.
const (
	Same    Outcome = iota // as there
	Other                  // differently, which Does explains
	Noted                  // has no effect, which is reported
	Refused                // is an error
)

// Answer is what a flag of another launcher does in a command.
type Answer struct {
	Outcome
	Does string // for Noted why it has no effect, for Refused its replacement
}

// TorchrunFlag is a flag of torchrun 2.15.
type TorchrunFlag struct {
	Spelling
	Default  string
	Torchrun Answer // of regroup torchrun
	Run      Answer // of regroup run and regroup submit
}

// TorchrunFlags are all of torchrun, in the order of its help.
var TorchrunFlags = []TorchrunFlag{
	{
		"--nnodes N|MIN:MAX", "1:1",
		Answer{Same, "number of nodes"},
		Answer{Other, "times --nproc-per-node, how many workers; with a server of the run's own there is one node"},
	},
	both("--nproc-per-node N|auto|cpu|gpu", "1", Answer{Same, "workers on each node; the words count what this machine has"}),
	{
		"--rdzv-backend NAME", "static",
		Answer{Other, "static and c10d say which node is the host of --rdzv-endpoint, as there; the rendezvous is Regroup's in any case"},
		Answer{Noted, "Regroup's own rendezvous is used"},
	},
	{
		"--rdzv-endpoint HOST:PORT", "",
		Answer{Other, "the node that has this address serves the job: broker and services, where torchrun serves a store; with --server it has no effect"},
		Answer{Noted, "the workers meet through the server: --server, or one of the run's own"},
	},
	{
		"--rdzv-id ID", "none",
		Answer{Same, "names the run: nodes with the same one are in the same job"},
		Answer{Other, "name of the job"},
	},
	{
		"--rdzv-conf KEY=VALUE,...", "",
		Answer{Other, "times of the rendezvous: join_timeout, last_call_timeout, close_timeout, keep_alive_interval, keep_alive_max_attempt; is_host; other keys are accepted with a note, as are quotes around all of it"},
		Answer{Other, "join_timeout is --start-timeout; of the others it is said that they have no meaning"},
	},
	{
		"--standalone", "false",
		Answer{Same, "this node alone, with a server of its own"},
		Answer{Same, "a server of the run's own, whatever else is configured or runs"},
	},
	{
		"--max-restarts N", "0",
		Answer{Other, "failures that the job survives: of the job, where torchrun counts in each agent; planned changes are not counted"},
		Answer{Other, "failures within an hour that the job survives; 20 where it is not given, with torchrun 0"},
	},
	both("--monitor-interval SECONDS", "0.1", Answer{Noted, "the end of a worker is seen at once"}),
	both("--start-method NAME", "spawn", Answer{Noted, "workers are programs of their own, nothing is forked"}),
	both("--event-log-handler NAME", "null", Answer{Noted, "everything that happens is an event: regroup events JOB"}),
	both("--role NAME", "default", Answer{Same, "ROLE_NAME of the workers"}),
	both("-m, --module", "false", Answer{Same, "the program is a Python module: python3 -u -m"}),
	both("--no-python", "false", Answer{Same, "the program is run as it is"}),
	both("--run-path", "false", Answer{Other, "the script is run as python runs it, which is what runpy.run_path does in torchrun"}),
	{
		"--log-dir DIR", "",
		Answer{Other, "as there, but attempt_N counts generations: nothing of a worker is overwritten by a later one. TORCHELASTIC_ERROR_FILE of a worker is error.json there; without this flag the file is removed once it was read"},
		Answer{Refused, "regroup logs JOB has the output of each worker: --rank, --node, --gen"},
	},
	{
		"-r, --redirects STD", "0",
		Answer{Same, "which output of which local rank goes to --log-dir alone: 0 to 3, or 0:3,1:1. All of it is also kept: regroup logs JOB"},
		Answer{Refused, "0 is the default here; output is shown and kept: regroup logs JOB"},
	},
	{
		"-t, --tee STD", "0",
		Answer{Same, "which output is shown with the prefix, and written to --log-dir"},
		Answer{Noted, "all output is shown here and kept: regroup logs JOB"},
	},
	{
		"--log-line-prefix-template TEXT", "[${role_name}${local_rank}]:",
		Answer{Same, "the prefix, with ${role_name}, ${local_rank}, ${rank} and ${hostname}"},
		Answer{Refused, "lines are shown with node, rank and generation; regroup logs JOB -o jsonl is for programs"},
	},
	{
		"--local-ranks-filter RANKS", "",
		Answer{Same, "only output of these local ranks is shown"},
		Answer{Refused, "regroup logs JOB -f --rank RANKS"},
	},
	{
		"--duplicate-stdout-filters TEXTS", "",
		Answer{Same, "lines of stdout with one of these texts are written to filtered_stdout.log too"},
		Answer{Refused, "regroup logs JOB -i TEXT"},
	},
	{
		"--duplicate-stderr-filters TEXTS", "",
		Answer{Same, "lines of stderr with one of these texts are written to filtered_stderr.log too"},
		Answer{Refused, "regroup logs JOB -i TEXT"},
	},
	{
		"--node-rank N", "0",
		Answer{Other, "with the static backend: the node with 0 serves the job at --master-addr; ranks follow from who is there"},
		Answer{Other, "0 is of one node; another rank is refused: ranks follow from who is there"},
	},
	{
		"--master-addr HOST", "127.0.0.1",
		Answer{Other, "with the static backend the address of node 0, for the server of the job. MASTER_ADDR of the workers is that of the agent that has rank 0"},
		Answer{Noted, "workers get MASTER_ADDR of the agent that has rank 0"},
	},
	{
		"--master-port PORT", "29500",
		Answer{Other, "with the static backend the port of that server. MASTER_PORT of the workers is a new one in each generation"},
		Answer{Noted, "workers get MASTER_PORT of the agent that has rank 0"},
	},
	{
		"--local-addr HOST", "",
		Answer{Same, "the address under which other nodes reach this one"},
		Answer{Noted, "--advertise of regroup agent is the address of a node"},
	},
	both("--logs-specs NAME", "", Answer{Noted, "no Python code runs in this launcher"}),
	both("--numa-binding MODE", "", Answer{Noted, "workers are not bound: start them with numactl, --no-python and ${local_rank}"}),
	{
		"--signals-to-handle SIGNALS", "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
		Answer{Other, "the signals that end the job here; workers get SIGTERM for each of them"},
		Answer{Refused, "SIGINT and SIGTERM end a run, and regroup stop JOB does"},
	},
	{
		"--shutdown-timeout SECONDS", "30",
		Answer{Other, "time between the signal to workers and their SIGKILL, also when workers are stopped because others have failed"},
		Answer{Same, "is --stop-grace"},
	},
	both("--virtual-local-rank", "false", Answer{Same, "LOCAL_RANK is 0, and CUDA_VISIBLE_DEVICES names the GPU of the worker"}),
	both("--print-completion SHELL", "", Answer{Refused, "regroup completion SHELL"}),
}

// both is a flag that has the same answer in all commands.
func both(s Spelling, initial string, a Answer) TorchrunFlag { return TorchrunFlag{s, initial, a, a} }
