// Package cgroup makes control groups for the processes of workers, which limit what they use and
// hold all that they start.
//
// The hierarchies of both versions of control groups may be mounted at a time: version 2 has the
// controllers that no hierarchy of version 1 has. A worker's group is below the agent's own.
package cgroup

import (
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/regroup-io/regroup/agent/procfs"
)

// Prefix begins the names of the groups that this package makes, Leaf is the one that the agent
// itself moves to, see vacate.
const (
	Prefix = "regroup-"
	Leaf   = "regroup-agent-leaf" // no group that others make has this name
)

// Hierarchies are the agent's own groups.
type Hierarchies struct {
	V2     string            // its directory in version 2; empty = none
	V1     map[string]string // directories in version 1, by controller
	Offers []string          // controllers of version 2

	mount string // of cgroups
	proc  procfs.Dir
}

// Find finds the agent's groups below the mount points of cgroups and of procfs. A container may
// see its group as the root of a hierarchy. An agent that an agent has started is where that one
// moved to, and shares its group.
func Find(cgroups, proc string) Hierarchies {
	h := Hierarchies{V1: map[string]string{}, mount: cgroups, proc: procfs.Dir(proc)}
	first := func(dirs ...string) string {
		for _, dir := range dirs {
			if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
				return dir
			}
		}
		return ""
	}
	for controllers, group := range own(proc) {
		if controllers == "" {
			unified := filepath.Join(cgroups, "unified")
			if _, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers")); err == nil {
				unified = cgroups
			}
			h.V2 = first(filepath.Join(unified, strings.TrimSuffix(group, "/"+Leaf)), unified)
			continue
		}
		for c := range strings.SplitSeq(controllers, ",") {
			h.V1[c] = first(filepath.Join(cgroups, controllers, group), filepath.Join(cgroups, c, group), filepath.Join(cgroups, c))
		}
	}
	if h.V2 != "" {
		b, _ := os.ReadFile(filepath.Join(h.V2, "cgroup.controllers"))
		h.Offers = strings.Fields(string(b))
	}
	return h
}

// own yields the groups of this process: the controllers of a hierarchy, such as cpu,cpuacct, or
// nothing for version 2, and the path of the group in it.
func own(proc string) iter.Seq2[string, string] {
	b, _ := os.ReadFile(filepath.Join(proc, "self/cgroup"))
	return func(yield func(controllers, group string) bool) {
		for line := range strings.Lines(string(b)) {
			parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // 4:cpu,cpuacct:/path, 0::/path
			if len(parts) == 3 && !yield(parts[1], parts[2]) {
				return
			}
		}
	}
}
