package events

import "slices"

// agentVariables are those that an agent sets for each worker: torchrun's, Horovod's and our own. Nobody else may set them, and a worker
// does not inherit them: the agent may run under a launcher itself.
var agentVariables = []string{
	"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME",
	"MASTER_ADDR", "MASTER_PORT",
	"TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_USE_AGENT_STORE",
	"HOROVOD_HOSTNAME", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE",
	"REGROUP_JOB", "REGROUP_NODE", "REGROUP_SLOT", "REGROUP_ATTEMPT", "REGROUP_GENERATION", "REGROUP_SOCKET", "REGROUP_TOKEN", "REGROUP_INCARNATION",
	"REGROUP_ADVERTISE", "REGROUP_DATA_PORTS",
}

// workerSettings are our variables that a worker reads and a user sets, in the job or in the shell of the agent. All others that begin
// with REGROUP_ are the control plane's: they may hold its address and credentials, which no worker inherits.
var workerSettings = []string{
	"REGROUP_CHECKPOINT_DIR", "REGROUP_CHECKPOINT_EVERY", "REGROUP_CHECKPOINT_KEEP", "REGROUP_WARM_WITHIN", "REGROUP_LOG_LEVEL",
	"REGROUP_BUCKET_BYTES", "REGROUP_INLINE_BYTES", "REGROUP_SHARED_MEMORY", "REGROUP_GPU",
	"REGROUP_DEADLOCK_SECONDS", "REGROUP_LIBRARY", "REGROUP_CUDA_LIBRARY", "REGROUP_NCCL_LIBRARY",
}

// AgentSets tells whether a variable is one that the agent sets for each worker.
func AgentSets(name string) bool { return slices.Contains(agentVariables, name) }

// WorkerSetting tells whether a variable that begins with REGROUP_ is a setting of workers.
func WorkerSetting(name string) bool { return slices.Contains(workerSettings, name) }
