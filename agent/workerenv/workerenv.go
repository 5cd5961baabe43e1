// Package workerenv says which environment variables a worker has, and so which GPUs it sees.
package workerenv

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

// Host is what an agent knows of its node for this.
type Host struct {
	Advertise string            // data-plane host
	DataPorts string            // low-high; empty = any
	Socket    string            // path of the worker API
	ErrorDir  string            // directory of TORCHELASTIC_ERROR_FILE
	Devices   map[string]string // variables of the agent that hide GPUs, such as CUDA_VISIBLE_DEVICES
	GPUs      []string          // those of the slots, as CUDA_VISIBLE_DEVICES names them; nil = workers see all
}

// Process is the process that gets the environment.
type Process struct {
	Incarnation ident.Incarnation
	Generation  ident.Generation // 0 = in-process recovery: ranks come with the assignment
	Traceparent string           // of its span; empty = it has none
}

// Variables returns a worker's variables, which are the job's, overridden by Regroup's, and the
// defaults of those that nobody sets. With restart recovery they include ranks, as torchrun and
// Horovod set them. With in-process recovery a process begins in generation 0, and ranks come with
// the assignment.
func (h Host) Variables(l events.Launch, m events.LaunchMember, p Process) (env, defaults map[string]string) {
	env = make(map[string]string, len(l.Spec.Env)+32)
	maps.Copy(env, l.Spec.Env)
	n := strconv.Itoa
	maps.Copy(env, map[string]string{
		workerprotocol.EnvJob:         string(l.Job),
		workerprotocol.EnvNode:        string(m.Place.Node),
		workerprotocol.EnvSlot:        n(int(m.Place.Slot)),
		workerprotocol.EnvAttempt:     n(m.Attempt),
		workerprotocol.EnvGeneration:  strconv.FormatUint(uint64(p.Generation), 10),
		workerprotocol.EnvSocket:      h.Socket,
		workerprotocol.EnvIncarnation: string(p.Incarnation),
		workerprotocol.EnvAdvertise:   h.Advertise,
		workerprotocol.EnvDataPorts:   h.DataPorts,
		"HOROVOD_HOSTNAME":            string(m.Place.Node),
		"TORCHELASTIC_RUN_ID":         string(l.Job),
		"TORCHELASTIC_ERROR_FILE":     h.errorFile(p.Incarnation),
	})
	if p.Traceparent != "" {
		env[workerprotocol.EnvTraceparent] = p.Traceparent
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
	one := l.Spec.Processes.VirtualLocalRank && p.Generation != 0
	gpus := h.gpusOf(l, m, one)
	_, chosen := l.Spec.Env[visibleDevices[0]]
	dealt := gpus != nil && !chosen
	if dealt {
		env[visibleDevices[0]] = strings.Join(gpus, ",")
	}
	if p.Generation == 0 {
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
		h.oneDevice(env, m.LocalRank, dealt)
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
func (h Host) gpusOf(l events.Launch, m events.LaunchMember, one bool) (ids []string) {
	if int(m.Place.Slot) >= len(h.GPUs) {
		return nil
	}
	own := h.GPUs[m.Place.Slot]
	if one || strings.HasPrefix(own, "MIG-") {
		return []string{own}
	}
	slots := make([]int, 0, len(l.Members))
	for _, x := range l.Members {
		slots = append(slots, int(x.Place.Slot))
	}
	slices.Sort(slots)
	for _, slot := range slots {
		if slot < len(h.GPUs) {
			ids = append(ids, h.GPUs[slot])
		}
	}
	return ids
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
func (h Host) oneDevice(env map[string]string, rank int, dealt bool) {
	env["LOCAL_RANK"] = "0"
	if dealt {
		return
	}
	for i, name := range visibleDevices {
		visible, given := env[name]
		if !given {
			visible, given = h.Devices[name]
		}
		switch all := strings.Split(visible, ","); {
		case given && rank < len(all):
			env[name] = strings.TrimSpace(all[rank])
		case i == 0:
			env[name] = strconv.Itoa(rank)
		}
	}
}

func (h Host) errorFile(id ident.Incarnation) string {
	if h.ErrorDir == "" {
		return ""
	}
	return h.ErrorDir + "/" + string(id) + ".json"
}

// useAgentStore returns the value of TORCHELASTIC_USE_AGENT_STORE.
func useAgentStore(s spec.Job) string {
	if s.Processes.Store == spec.StoreAgent {
		return "True"
	}
	return "False"
}
