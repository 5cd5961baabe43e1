package cgroup

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/events/spec"
)

// period is the time in microseconds within which a group may use its share of the processors.
const period = 100_000

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

// Create makes a worker's group with limits; nil = without limits, where no group can be made. The
// error names the limit.
func (h *Hierarchies) Create(l spec.ProcessLimits) (*Group, error) {
	name := Prefix + strings.ToLower(rand.Text())
	g := &Group{v1: map[string]string{}, home: map[string]string{}}
	if err := h.fill(g, name, l); err != nil {
		g.End()
		return nil, err
	}
	if len(g.Dirs()) == 0 {
		return nil, nil
	}
	return g, nil
}

func (h *Hierarchies) fill(g *Group, name string, l spec.ProcessLimits) error {
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
		if !slices.Contains(h.Offers, s.controller) {
			if h.V1[s.controller] == "" {
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
	if h.V2 != "" {
		dir := filepath.Join(h.V2, name)
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
	if g.v2 == "" && len(g.v1) == 0 && h.V1["pids"] != "" { // it only holds what the worker starts
		_ = h.makeV1(g, "pids", name)
	}
	return nil
}

// makeV1 makes a group of a controller, unless it exists.
func (h *Hierarchies) makeV1(g *Group, controller, name string) error {
	if g.v1[controller] != "" {
		return nil
	}
	dir := filepath.Join(h.V1[controller], name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	g.v1[controller], g.home[controller] = dir, h.V1[controller]
	return nil
}

// enable makes the controllers available to groups below the agent's in version 2.
func (h *Hierarchies) enable(controllers []string) error {
	if err := h.vacate(); err != nil {
		return err
	}
	file := filepath.Join(h.V2, "cgroup.subtree_control")
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
