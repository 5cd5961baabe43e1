package spec

import "slices"

// WorkerVariable is an environment variable of workers.
type WorkerVariable struct {
	Name    string
	What    string // a sentence for docs/environment.md
	Default string // of a setting; empty = unset
}

// AgentVariables are those that an agent sets for each worker: torchrun's, Horovod's and Regroup's.
// Jobs may not set them, and a worker does not inherit them, because the agent may run under a
// launcher itself.
var AgentVariables = []WorkerVariable{
	{Name: "RANK", What: "Rank among all workers, from 0; like the next ones only with recovery by restart."},
	{Name: "LOCAL_RANK", What: "Rank among the workers of the node."},
	{Name: "WORLD_SIZE", What: "Number of workers."},
	{Name: "LOCAL_WORLD_SIZE", What: "Number of workers on the node."},
	{Name: "GROUP_RANK", What: "Number of the node among those that have a worker, from 0."},
	{Name: "GROUP_WORLD_SIZE", What: "Number of nodes that have a worker."},
	{Name: "ROLE_RANK", What: "As RANK."},
	{Name: "ROLE_WORLD_SIZE", What: "As WORLD_SIZE."},
	{Name: "ROLE_NAME", What: "`processes.role` of the job."},
	{Name: "MASTER_ADDR", What: "Host of the agent that has rank 0."},
	{Name: "MASTER_PORT", What: "Port of the store that this agent serves, a different one in each generation; with `processes.store: rank0` a free port."},
	{Name: "TORCHELASTIC_RUN_ID", What: "Id of the job."},
	{Name: "TORCHELASTIC_ERROR_FILE", What: "File in which a worker leaves its last exception; torch's `@record` and `regroup.record` do."},
	{Name: "TORCHELASTIC_RESTART_COUNT", What: "How often failures have made a new generation necessary; planned changes are not counted."},
	{Name: "TORCHELASTIC_MAX_RESTARTS", What: "`failures.max` of the job."},
	{Name: "TORCHELASTIC_USE_AGENT_STORE", What: "`True`: rank 0 need not serve the store; with `processes.store: rank0`, `False`."},
	{Name: "HOROVOD_HOSTNAME", What: "Name of the node."},
	{Name: "HOROVOD_RANK", What: "As RANK."},
	{Name: "HOROVOD_SIZE", What: "As WORLD_SIZE."},
	{Name: "HOROVOD_LOCAL_RANK", What: "As LOCAL_RANK."},
	{Name: "HOROVOD_LOCAL_SIZE", What: "As LOCAL_WORLD_SIZE."},
	{Name: "HOROVOD_CROSS_RANK", What: "Number of the node among those that have a worker with this local rank, from 0."},
	{Name: "HOROVOD_CROSS_SIZE", What: "Number of nodes that have a worker with this local rank."},
	{Name: "REGROUP_JOB", What: "Id of the job."},
	{Name: "REGROUP_NODE", What: "Name of the node."},
	{Name: "REGROUP_SLOT", What: "Slot on the node, from 0: it stays while ranks change."},
	{Name: "REGROUP_ATTEMPT", What: "Number of the incarnation in this place, from 1."},
	{Name: "REGROUP_GENERATION", What: "Generation that the process was made for; 0 with in-process recovery, where it changes."},
	{Name: "REGROUP_SOCKET", What: "Path of the agent's Unix socket."},
	{Name: "REGROUP_TOKEN", What: "Names the worker to its agent."},
	{Name: "REGROUP_INCARNATION", What: "Id of this incarnation of the worker."},
	{Name: "REGROUP_ADVERTISE", What: "Host under which other workers reach this one."},
	{Name: "REGROUP_ENCRYPT", What: "1 = workers encrypt what they send each other: `processes.encrypt` of the job."},
	{Name: "TRACEPARENT", What: "W3C trace context of the worker's span, for spans of the program below it ([traces.md](traces.md))."},
	{Name: "TRACESTATE", What: "Never set, nor inherited: it would belong to another trace."},
	{Name: "REGROUP_DATA_PORTS", What: "Ports on which it may listen, low-high; empty = any."},
	{Name: "REGROUP_CHECKPOINT_DEFAULT_DIR", What: "Folder for checkpoints, which exists as long as the job; with in-process recovery, where `REGROUP_CHECKPOINT_DIR` is not set."},
}

// DefaultVariables are those of others that an agent sets for each worker where neither the job nor
// the environment of the agent does.
var DefaultVariables = []WorkerVariable{
	{Name: "OMP_NUM_THREADS", What: "Threads that a worker computes with, as with torchrun; not set if it is the only one.", Default: "1"},
	{Name: "PYTHONUNBUFFERED", What: "Output of Python is passed on line by line.", Default: "1"},
	{Name: "THP_MEM_ALLOC_ENABLE", What: "PyTorch asks for huge pages for tensors from 2 MiB on: a worker with much memory begins and ends sooner ([ADR 45](adr/0045-large-memory-is-in-huge-pages.md)).", Default: "1"},
	{Name: "TORCH_NCCL_ASYNC_ERROR_HANDLING", What: "As with torchrun.", Default: "1"},
}

// WorkerSettings are Regroup's variables that a worker reads and a user sets, in the job or in the
// shell of the agent. All others that begin with REGROUP_ belong to the control plane: they may
// contain its address and credentials, which no worker inherits.
var WorkerSettings = []WorkerVariable{
	{Name: "REGROUP_CHECKPOINT_DIR", What: "Folder for checkpoints, of all workers or one of each node; unset = the agent's for this job, which ends with it; empty = none are written."},
	{Name: "REGROUP_CHECKPOINT_EVERY", What: "How often one is written, such as 10m; in the agent's folder 5m if unset.", Default: "10m"},
	{Name: "REGROUP_CHECKPOINT_KEEP", What: "How many are kept; in the agent's folder 1 if unset.", Default: "3"},
	{Name: "REGROUP_PREFETCH_WITHIN", What: "How long a newcomer prefetches the state while the others train, before it joins without it.", Default: "1m"},
	{Name: "REGROUP_LOG_LEVEL", What: "Minimum level of the SDK's own log lines: debug, info, warn or error.", Default: "warn"},
	{Name: "REGROUP_BUCKET_BYTES", What: "Bytes of gradients that are reduced at once; unset = HOROVOD_FUSION_THRESHOLD, else 25 MiB. Python.", Default: "26214400"},
	{Name: "REGROUP_INLINE_BYTES", What: "Maximum size in bytes of operations that run on the calling thread. Python.", Default: "262144"},
	{Name: "REGROUP_SHARED_MEMORY", What: "0 = disable shared memory between the ranks of one machine, for comparison. Python.", Default: "1"},
	{Name: "REGROUP_GPU", What: "0 = copy tensors on GPUs through the host instead of using NCCL, for comparison. Python.", Default: "1"},
	{Name: "REGROUP_DEADLOCK_SECONDS", What: "How long all ranks may wait for each other in different operations before they get an error; 0 = for ever. Python.", Default: "10"},
	{Name: "REGROUP_LIBRARY", What: "Path of libregroup.so; unset = next to the Python package."},
	{Name: "REGROUP_CUDA_LIBRARY", What: "Path of the CUDA driver's library; unset = where the system has it."},
	{Name: "REGROUP_NCCL_LIBRARY", What: "Path of NCCL's library; unset = torch's, else the system's."},
}

// AgentSets reports whether the agent sets a variable for each worker.
func AgentSets(name string) bool { return listed(AgentVariables, name) }

// WorkerSetting reports whether a variable that begins with REGROUP_ is a setting of workers.
func WorkerSetting(name string) bool { return listed(WorkerSettings, name) }

func listed(all []WorkerVariable, name string) bool {
	return slices.ContainsFunc(all, func(v WorkerVariable) bool { return v.Name == name })
}
