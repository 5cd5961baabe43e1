package proc

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/events/spec"
)

// Control groups limit what a worker may use, and hold all that it starts. The hierarchies of both
// versions may be mounted at a time: version 2 has the controllers that no hierarchy of version 1
// has. A worker's group is below the agent's own.

// period is the time in microseconds within which a group may use its share of the processors.
const period = 100_000

// groupPrefix begins the names of the groups that this package makes, agentLeaf is the one that the
// agent itself moves to, see vacate.
const (
	groupPrefix = "regroup-"
	agentLeaf   = "regroup-agent-leaf" // no group that others make has this name
)

// hierarchies are the agent's own groups.
type hierarchies struct {
	v2     string            // empty = none
	v1     map[string]string // by controller
	offers []string          // controllers of v2
	proc   string            // mount point of procfs
}

// findHierarchies finds the agent's groups below the mount point of cgroups. A container may see
// its group as the root of a hierarchy. An agent that an agent has started is where that one moved
// to, and shares its group.
func findHierarchies(cgroups, proc string) hierarchies {
	h := hierarchies{v1: map[string]string{}, proc: proc}
	first := func(dirs ...string) string {
		for _, dir := range dirs {
			if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
				return dir
			}
		}
		return ""
	}
	b, _ := os.ReadFile(filepath.Join(proc, "self/cgroup"))
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) != 3:
		case parts[0] == "0" && parts[1] == "":
			unified := filepath.Join(cgroups, "unified")
			if _, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers")); err == nil {
				unified = cgroups
			}
			h.v2 = first(filepath.Join(unified, strings.TrimSuffix(parts[2], "/"+agentLeaf)), unified)
		default:
			for c := range strings.SplitSeq(parts[1], ",") {
				h.v1[c] = first(filepath.Join(cgroups, parts[1], parts[2]), filepath.Join(cgroups, c, parts[2]), filepath.Join(cgroups, c))
			}
		}
	}
	if h.v2 != "" {
		b, _ := os.ReadFile(filepath.Join(h.v2, "cgroup.controllers"))
		h.offers = strings.Fields(string(b))
	}
	return h
}

// setting is what is written into a file of a group.
type setting struct {
	controller, file, value string
	optional                bool // the file need not exist
}

// settings returns those of limits for each version of cgroups.
func settings(l spec.ProcessLimits) (v1, v2 []setting) {
	if l.Memory > 0 {
		n := strconv.FormatUint(uint64(l.Memory), 10)
		v1 = append(v1, setting{"memory", "memory.limit_in_bytes", n, false}, setting{"memory", "memory.memsw.limit_in_bytes", n, true})
		v2 = append(v2, setting{"memory", "memory.max", n, false}, setting{"memory", "memory.swap.max", "0", true}, setting{"memory", "memory.oom.group", "1", true})
	}
	if l.PIDs > 0 {
		n := strconv.Itoa(l.PIDs)
		v1, v2 = append(v1, setting{"pids", "pids.max", n, false}), append(v2, setting{"pids", "pids.max", n, false})
	}
	if l.CPUs > 0 {
		quota := strconv.FormatInt(max(int64(l.CPUs*period), 1000), 10) // the kernel's minimum
		v1 = append(v1, setting{"cpu", "cpu.cfs_period_us", strconv.Itoa(period), false}, setting{"cpu", "cpu.cfs_quota_us", quota, false})
		v2 = append(v2, setting{"cpu", "cpu.max", quota + " " + strconv.Itoa(period), false})
	}
	return v1, v2
}

// create makes a worker's group with limits; nil = without limits, where no group can be made. The
// error is a StartError that names the limit.
func (h *hierarchies) create(l spec.ProcessLimits) (*group, error) {
	name := groupPrefix + strings.ToLower(rand.Text())
	g := &group{v1: map[string]string{}, home: map[string]string{}}
	err := h.fill(g, name, l)
	switch {
	case err == nil && (g.v2 != "" || len(g.v1) > 0):
		return g, nil
	case err != nil:
		g.end()
		return nil, &StartError{ExitCode: 126, Detail: err.Error()}
	}
	return nil, nil
}

func (h *hierarchies) fill(g *group, name string, l spec.ProcessLimits) error {
	v1, v2 := settings(l)
	write := func(dir string, s setting) error {
		err := os.WriteFile(filepath.Join(dir, s.file), []byte(s.value), 0o600)
		if s.optional && errors.Is(err, fs.ErrNotExist) { // a kernel without an account of swap, or an old one
			err = nil
		}
		return err
	}
	refuse := func(controller string, err error) error {
		field := map[string]string{"memory": "memory", "pids": "pids", "cpu": "cpus"}[controller]
		return fmt.Errorf("processes.limits.%s: this node cannot limit it: %w", field, err)
	}
	var wanted []string // of v2
	for _, s := range v2 {
		if !slices.Contains(h.offers, s.controller) {
			if h.v1[s.controller] == "" {
				return refuse(s.controller, errors.New("it has no control group with the controller "+s.controller))
			}
		} else if !slices.Contains(wanted, s.controller) {
			wanted = append(wanted, s.controller)
		}
	}
	if len(wanted) > 0 {
		if err := h.enable(wanted); err != nil {
			return refuse(wanted[0], err)
		}
	}
	if h.v2 != "" {
		dir := filepath.Join(h.v2, name)
		if err := os.Mkdir(dir, 0o755); err == nil {
			g.v2 = dir
		} else if len(wanted) > 0 {
			return refuse(wanted[0], err)
		}
	}
	for _, s := range v2 {
		if slices.Contains(wanted, s.controller) {
			if err := write(g.v2, s); err != nil {
				return refuse(s.controller, err)
			}
		}
	}
	for _, s := range v1 {
		if slices.Contains(wanted, s.controller) {
			continue
		}
		if err := h.makeV1(g, s.controller, name); err != nil {
			return refuse(s.controller, err)
		}
		if err := write(g.v1[s.controller], s); err != nil {
			return refuse(s.controller, err)
		}
	}
	if g.v2 == "" && len(g.v1) == 0 && h.v1["pids"] != "" { // it only holds what the worker starts
		_ = h.makeV1(g, "pids", name)
	}
	return nil
}

// makeV1 makes a group of a controller, unless it exists.
func (h *hierarchies) makeV1(g *group, controller, name string) error {
	if g.v1[controller] != "" {
		return nil
	}
	dir := filepath.Join(h.v1[controller], name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	g.v1[controller], g.home[controller] = dir, h.v1[controller]
	return nil
}

// enable makes the controllers available to groups below the agent's in version 2.
func (h *hierarchies) enable(controllers []string) error {
	if err := h.vacate(); err != nil {
		return err
	}
	file := filepath.Join(h.v2, "cgroup.subtree_control")
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	have := strings.Fields(string(b))
	var missing []string
	for _, c := range controllers {
		if !slices.Contains(have, c) {
			missing = append(missing, "+"+c)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return os.WriteFile(file, []byte(strings.Join(missing, " ")), 0o600)
}

// dirs returns the directories of a group.
func (g *group) dirs() []string {
	if g == nil {
		return nil
	}
	all := slices.Sorted(maps.Values(g.v1))
	if g.v2 != "" {
		all = append(all, g.v2)
	}
	return all
}
