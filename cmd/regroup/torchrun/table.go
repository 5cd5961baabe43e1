package torchrun

import (
	"fmt"
	"strings"

	"github.com/regroup-io/regroup/cmd/regroup/internal/jobflags"
)

// outcome is how a flag of torchrun behaves here.
type outcome int

const (
	same  outcome = iota // as in torchrun
	other                // differently, which the table explains
	noted                // without effect, which is said when it is given
)

// flag is one of torchrun's.
type flag struct {
	jobflags.Spelling
	initial string // its default
	outcome outcome
	does    string // for noted: why it has no effect
}

// flags are all of torchrun 2.15, in the order of its help.
var flags = []flag{
	{"--nnodes N|MIN:MAX", "1:1", same, "number of nodes"},
	{"--nproc-per-node N|auto|cpu|gpu", "1", same, "workers on each node; the words count what this machine has"},
	{"--rdzv-backend NAME", "static", other, "static and c10d say which node is the host of --rdzv-endpoint, as there; the rendezvous is Regroup's in any case"},
	{"--rdzv-endpoint HOST:PORT", "", other, "the node that has this address serves the job: broker and services, where torchrun serves a store; with --server it has no effect"},
	{"--rdzv-id ID", "none", same, "names the run: nodes with the same one are in the same job"},
	{"--rdzv-conf KEY=VALUE,...", "", other, "times of the rendezvous: join_timeout, last_call_timeout, close_timeout, keep_alive_interval, keep_alive_max_attempt; is_host; other keys are accepted with a note, as are quotes around all of it"},
	{"--standalone", "false", same, "this node alone, with a server of its own"},
	{"--max-restarts N", "0", other, "failures that the job survives: of the job, where torchrun counts in each agent; planned changes are not counted"},
	{"--monitor-interval SECONDS", "0.1", noted, "the end of a worker is seen at once"},
	{"--start-method NAME", "spawn", noted, "workers are programs of their own, nothing is forked"},
	{"--event-log-handler NAME", "null", noted, "everything that happens is an event: regroup events JOB"},
	{"--role NAME", "default", same, "ROLE_NAME of the workers"},
	{"-m, --module", "false", same, "the program is a Python module"},
	{"--no-python", "false", same, "the program is run as it is"},
	{"--run-path", "false", other, "the script is run as python runs it, which is what runpy.run_path does in torchrun"},
	{"--log-dir DIR", "", other, "as there, but attempt_N counts generations: nothing of a worker is overwritten by a later one. TORCHELASTIC_ERROR_FILE of a worker is error.json there; without this flag the file is removed once it was read"},
	{"-r, --redirects STD", "0", same, "which output of which local rank goes to --log-dir alone: 0 to 3, or 0:3,1:1. All of it is also kept: regroup logs JOB"},
	{"-t, --tee STD", "0", same, "which output is shown with the prefix, and written to --log-dir"},
	{"--log-line-prefix-template TEXT", "[${role_name}${local_rank}]:", same, "the prefix, with ${role_name}, ${local_rank}, ${rank} and ${hostname}"},
	{"--local-ranks-filter RANKS", "", same, "only output of these local ranks is shown"},
	{"--duplicate-stdout-filters TEXTS", "", same, "lines of stdout with one of these texts are written to filtered_stdout.log too"},
	{"--duplicate-stderr-filters TEXTS", "", same, "lines of stderr with one of these texts are written to filtered_stderr.log too"},
	{"--node-rank N", "0", other, "with the static backend: the node with 0 serves the job at --master-addr; ranks follow from who is there"},
	{"--master-addr HOST", "127.0.0.1", other, "with the static backend the address of node 0, for the server of the job. MASTER_ADDR of the workers is that of the agent that has rank 0"},
	{"--master-port PORT", "29500", other, "with the static backend the port of that server. MASTER_PORT of the workers is a new one in each generation"},
	{"--local-addr HOST", "", same, "the address under which other nodes reach this one"},
	{"--logs-specs NAME", "", noted, "no Python code runs in this launcher"},
	{"--numa-binding MODE", "", noted, "workers are not bound: start them with numactl, --no-python and ${local_rank}"},
	{"--signals-to-handle SIGNALS", "SIGTERM,SIGINT,SIGHUP,SIGQUIT", other, "the signals that end the job here; workers get SIGTERM for each of them"},
	{"--shutdown-timeout SECONDS", "30", other, "time between the signal to workers and their SIGKILL, also when workers are stopped because others have failed"},
	{"--virtual-local-rank", "false", same, "LOCAL_RANK is 0, and CUDA_VISIBLE_DEVICES names the GPU of the worker"},
	{"--print-completion SHELL", "", other, "refused; instead: regroup completion SHELL"},
}

// Table renders docs/torchrun.md's table of flags.
func Table() string {
	var b strings.Builder
	b.WriteString("| flag | default | here | what it does |\n|---|---|---|---|\n")
	for _, f := range flags {
		here := [...]string{"same", "other", "accepted with a note"}[f.outcome]
		initial := ""
		if f.initial != "" {
			initial = "`" + f.initial + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", f.Cell(), initial, here, f.does)
	}
	return b.String()
}
