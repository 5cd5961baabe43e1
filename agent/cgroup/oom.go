package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// OOMCounter counts the kernel's kills for memory in this agent's control group, which includes its
// workers: the key oom_kill in memory.events (version 2) or memory.oom_control (version 1). Each
// kill explains at most one exit, and without a counter no exit counts as out of memory.
type OOMCounter struct {
	files []string // possible locations, best first
	mu    sync.Mutex
	seen  uint64
}

// NewOOMCounter returns the counter below the mount points of cgroups and of procfs: that of the
// group as the host sees it, else that of the root of a container's view.
func NewOOMCounter(cgroups, proc string) *OOMCounter {
	o := &OOMCounter{}
	for controllers, group := range own(proc) {
		switch {
		case controllers == "":
			o.files = append(o.files, filepath.Join(cgroups, group, "memory.events"), filepath.Join(cgroups, "unified", group, "memory.events"))
		case strings.Contains(","+controllers+",", ",memory,"):
			o.files = append(o.files, filepath.Join(cgroups, "memory", group, "memory.oom_control"))
		}
	}
	o.files = append(o.files, filepath.Join(cgroups, "memory.events"), filepath.Join(cgroups, "memory", "memory.oom_control"))
	return o
}

// Read returns the number of kills; 0 where there is no counter.
func (o *OOMCounter) Read() uint64 { return oomKills(o.files...) }

// Grown reports whether there was a kill since Read returned before that explains no earlier exit.
func (o *OOMCounter) Grown(before uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.Read()
	ok := n > max(before, o.seen)
	o.seen = max(o.seen, n)
	return ok
}

// oomKills reads the counter in the first of the files that has one.
func oomKills(files ...string) uint64 {
	for _, f := range files {
		b, _ := os.ReadFile(f)
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
				if n, err := strconv.ParseUint(v, 10, 64); err == nil {
					return n
				}
			}
		}
	}
	return 0
}
