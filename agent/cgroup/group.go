package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endWithin limits how long the end of a group is awaited: a process that waits for a disk or a GPU
// may not die.
const endWithin = 2 * time.Second

// Group is a worker's control group: a directory of version 2, and one for each controller of
// version 1. A nil group holds nothing.
type Group struct {
	v2   string            // empty = none
	v1   map[string]string // by controller
	home map[string]string // the agent's own group of the same controller
}

// Start runs begin, which starts a process with attr, so that it is in the group from its first
// instruction. It must be called on the locked thread: with version 1 the child inherits the groups
// of the thread that forks it, which enters them and returns.
func (g *Group) Start(attr *syscall.SysProcAttr, begin func() error) error {
	if g == nil {
		return begin()
	}
	if g.v2 != "" {
		f, err := os.Open(g.v2)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		attr.UseCgroupFD, attr.CgroupFD = true, int(f.Fd())
	}
	thread := []byte(strconv.Itoa(unix.Gettid()))
	move := func(dirs map[string]string) (err error) {
		for _, dir := range dirs {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, "tasks"), thread, 0o600))
		}
		return err
	}
	err := move(g.v1)
	if err == nil {
		err = begin()
	}
	if back := move(g.home); back != nil { // its next child would be in this group
		err = errors.Join(err, fmt.Errorf("the agent does not come back from a worker's control group: %w", back))
	}
	return err
}

// LimitsMemory reports whether the group counts kills for lack of memory.
func (g *Group) LimitsMemory() bool {
	if g == nil {
		return false
	}
	_, err := os.Stat(filepath.Join(g.v2, "memory.events"))
	return g.v1["memory"] != "" || g.v2 != "" && err == nil
}

// OOMKills returns how many processes of the group the kernel has killed for lack of memory.
func (g *Group) OOMKills() uint64 {
	if dir := g.v1["memory"]; dir != "" {
		return oomKills(filepath.Join(dir, "memory.oom_control"))
	}
	return oomKills(filepath.Join(g.v2, "memory.events"))
}

// Kill kills all processes of the group, whatever they have made of themselves.
func (g *Group) Kill() {
	if g == nil {
		return
	}
	if g.v2 != "" && os.WriteFile(filepath.Join(g.v2, "cgroup.kill"), []byte("1"), 0o600) == nil {
		return
	}
	if dir := g.v1["pids"]; dir != "" { // no process may start another meanwhile
		_ = os.WriteFile(filepath.Join(dir, "pids.max"), []byte("0"), 0o600)
	}
	for _, dir := range g.Dirs() {
		killIn(dir)
	}
}

// killIn kills the processes of a directory, those of version 2 at once.
func killIn(dir string) {
	if os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0o600) == nil {
		return
	}
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(b)) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 1 && pid != os.Getpid() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// End kills what is in the group and removes it, within two seconds.
func (g *Group) End() {
	if g != nil {
		endGroups(g.Dirs(), g.Kill)
	}
}

// endGroups kills and removes until no directory is left.
func endGroups(dirs []string, kill func()) {
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for until := time.Now().Add(endWithin); time.Now().Before(until); <-again.C {
		kill()
		left := 0
		for _, dir := range dirs {
			if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				left++
			}
		}
		if left == 0 {
			return
		}
	}
}

// EndLeft ends the groups of an agent that was killed. Only directories of groups that this package
// has made are touched, whatever dirs says.
func (h *Hierarchies) EndLeft(dirs []string) {
	ours := slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool {
		base := filepath.Base(dir)
		return dir != filepath.Clean(dir) || !strings.HasPrefix(dir, h.mount+"/") || !strings.HasPrefix(base, Prefix) || base == Leaf
	})
	if len(ours) > 0 {
		endGroups(ours, func() {
			for _, dir := range ours {
				killIn(dir)
			}
		})
	}
}

// Dirs returns the directories of a group.
func (g *Group) Dirs() []string {
	if g == nil {
		return nil
	}
	all := slices.Sorted(maps.Values(g.v1))
	if g.v2 != "" {
		all = append(all, g.v2)
	}
	return all
}
