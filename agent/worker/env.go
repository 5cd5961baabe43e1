package worker

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// environment returns a worker's variables, which are the job's, overridden by Regroup's, and the
// defaults of those that nobody sets. With restart recovery they include ranks, as torchrun and
// Horovod set them. With in-process recovery a process begins in generation 0, and ranks come with
// the assignment.
func (c Config) environment(l events.Launch, m events.LaunchMember, w *incarnation) (env, defaults map[string]string) {
	env = make(map[string]string, len(l.Spec.Env)+32)
	maps.Copy(env, l.Spec.Env)
	n := strconv.Itoa
	maps.Copy(env, map[string]string{
		workerprotocol.EnvJob:         string(l.Job),
		workerprotocol.EnvNode:        string(m.Place.Node),
		workerprotocol.EnvSlot:        n(int(m.Place.Slot)),
		workerprotocol.EnvAttempt:     n(m.Attempt),
		workerprotocol.EnvGeneration:  strconv.FormatUint(uint64(w.ref.Generation), 10),
		workerprotocol.EnvSocket:      c.Socket,
		workerprotocol.EnvIncarnation: string(w.ref.Incarnation),
		workerprotocol.EnvAdvertise:   c.Advertise,
		workerprotocol.EnvDataPorts:   c.DataPorts,
		"HOROVOD_HOSTNAME":            string(m.Place.Node),
		"TORCHELASTIC_RUN_ID":         string(l.Job),
		"TORCHELASTIC_ERROR_FILE":     c.errorFile(w.ref.Incarnation),
	})
	if w.process.Self != "" {
		env[workerprotocol.EnvTraceparent] = w.process.Self
	}
	if l.Spec.Processes.Encrypt {
		env[workerprotocol.EnvEncrypt] = "1"
	}
	defaults = map[string]string{}
	for _, v := range spec.DefaultVariables {
		defaults[v.Name] = v.Default
	}
	if len(l.Members) == 1 {
		delete(defaults, "OMP_NUM_THREADS") // nobody competes with it for the processors
	}
	one := l.Spec.Processes.VirtualLocalRank && w.ref.Generation != 0
	gpus := c.gpusOf(l, m, one)
	_, chosen := l.Spec.Env[visibleDevices[0]]
	dealt := gpus != nil && !chosen
	if dealt {
		env[visibleDevices[0]] = strings.Join(gpus, ",")
	}
	if w.ref.Generation == 0 {
		return env, defaults
	}
	host, port := l.Master, ""
	if i := strings.LastIndexByte(l.Master, ':'); i >= 0 {
		host, port = strings.Trim(l.Master[:i], "[]"), l.Master[i+1:]
	}
	failures := 0
	if l.Spec.Failures.Max != nil {
		failures = *l.Spec.Failures.Max
	}
	first := firstOfNode(l, m)
	maps.Copy(env, map[string]string{
		"RANK":                         n(int(m.Rank)),
		"WORLD_SIZE":                   n(l.World),
		"LOCAL_RANK":                   n(m.LocalRank),
		"LOCAL_WORLD_SIZE":             n(m.LocalSize),
		"GROUP_RANK":                   n(first.CrossRank),
		"GROUP_WORLD_SIZE":             n(first.CrossSize),
		"ROLE_NAME":                    l.Spec.Processes.Role,
		"ROLE_RANK":                    n(int(m.Rank)),
		"ROLE_WORLD_SIZE":              n(l.World),
		"MASTER_ADDR":                  host,
		"MASTER_PORT":                  port,
		"TORCHELASTIC_RESTART_COUNT":   n(l.Restarts),
		"TORCHELASTIC_MAX_RESTARTS":    n(failures),
		"TORCHELASTIC_USE_AGENT_STORE": useAgentStore(l.Spec),
		"HOROVOD_RANK":                 n(int(m.Rank)),
		"HOROVOD_SIZE":                 n(l.World),
		"HOROVOD_LOCAL_RANK":           n(m.LocalRank),
		"HOROVOD_LOCAL_SIZE":           n(m.LocalSize),
		"HOROVOD_CROSS_RANK":           n(m.CrossRank),
		"HOROVOD_CROSS_SIZE":           n(m.CrossSize),
	})
	if one {
		c.oneDevice(env, m.LocalRank, dealt)
	}
	return env, defaults
}

// firstOfNode returns the node's member with local rank 0: the nodes that have one are all nodes,
// so that its cross rank is the node's number.
func firstOfNode(l events.Launch, m events.LaunchMember) events.LaunchMember {
	for _, x := range l.Members {
		if x.Rank >= 0 && x.LocalRank == 0 {
			return x
		}
	}
	return m
}

// visibleDevices are the variables that hide GPUs from a program: those of CUDA and of ROCm.
var visibleDevices = []string{"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}

// gpusOf returns the GPUs that a worker sees: those of its job's slots on the node, in the order of
// local ranks, because programs take the GPU with the number of theirs. Of two jobs on a node each
// has its own.
//
// Example: slots 0, 1 and 3 of a node are of one job. Its workers see the GPUs 0, 1 and 3, and
// torch.device("cuda", LOCAL_RANK) is for the third one, with local rank 2, the GPU 3.
//
// Of instances (MIG) CUDA uses one in a process, so a worker sees its own alone, as it does with
// one.
func (c Config) gpusOf(l events.Launch, m events.LaunchMember, one bool) (ids []string) {
	if int(m.Place.Slot) >= len(c.GPUs) {
		return nil
	}
	own := c.GPUs[m.Place.Slot]
	if one || strings.HasPrefix(own, "MIG-") {
		return []string{own}
	}
	slots := make([]int, 0, len(l.Members))
	for _, x := range l.Members {
		slots = append(slots, int(x.Place.Slot))
	}
	slices.Sort(slots)
	for _, slot := range slots {
		if slot < len(c.GPUs) {
			ids = append(ids, c.GPUs[slot])
		}
	}
	return ids
}

// gpuIsFree reports whether a job's worker may start on a slot: not while one of another job that
// had the slot before is still ending, if the slot has a GPU. What that one holds of the GPU's
// memory is free once the process can be waited for, 111 to 135 ms after a SIGKILL on an H200.
//
// Example: a job is scaled down, and its worker on slot 1 takes 20 s to stop. The job that has slot
// 1 now starts its worker there after that, instead of running out of memory.
func (t *transition) gpuIsFree(j *job, slot ident.Slot) bool {
	if int(slot) >= len(t.s.cfg.GPUs) {
		return true
	}
	for _, other := range t.s.jobs {
		if w := other.incarnations[slot]; other != j && w != nil && w.alive() {
			return false
		}
	}
	return true
}

// VisibleDevices returns those that are set.
func VisibleDevices(lookup func(string) (string, bool)) map[string]string {
	set := map[string]string{}
	for _, name := range visibleDevices {
		if v, ok := lookup(name); ok {
			set[name] = v
		}
	}
	return set
}

// oneDevice makes the GPU of a local rank the only one that its worker sees, as its number 0; dealt
// = it is already.
func (c Config) oneDevice(env map[string]string, rank int, dealt bool) {
	env["LOCAL_RANK"] = "0"
	if dealt {
		return
	}
	for i, name := range visibleDevices {
		visible, given := env[name]
		if !given {
			visible, given = c.Devices[name]
		}
		switch all := strings.Split(visible, ","); {
		case given && rank < len(all):
			env[name] = strings.TrimSpace(all[rank])
		case i == 0:
			env[name] = strconv.Itoa(rank)
		}
	}
}

func (c Config) errorFile(id ident.Incarnation) string {
	if c.ErrorDir == "" {
		return ""
	}
	return c.ErrorDir + "/" + string(id) + ".json"
}

// localRank replaces a literal ${local_rank} in arguments, as torchrun does.
func localRank(command []string, rank int) []string {
	out := make([]string, len(command))
	for i, a := range command {
		out[i] = strings.ReplaceAll(a, "${local_rank}", strconv.Itoa(rank))
	}
	return out
}

// EnvIncarnation is the variable that identifies a process as a worker's, whatever its process
// group.
const EnvIncarnation = workerprotocol.EnvIncarnation
