package proc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// oomCounter counts the kernel's kills for memory in this agent's control group, which includes its
// workers: the key oom_kill in memory.events (cgroup v2) or memory.oom_control (v1). Each kill
// explains at most one exit, and without a counter no exit counts as out of memory.
type oomCounter struct {
	files []string
	mu    sync.Mutex
	seen  uint64
}

// oomFiles returns the possible locations of the counter, best first: the group as the host sees
// it, then the root of a container's view.
func oomFiles(cgroups, proc string) []string {
	var files []string
	b, _ := os.ReadFile(filepath.Join(proc, "self/cgroup"))
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case parts[0] == "0" && parts[1] == "":
			files = append(files, filepath.Join(cgroups, parts[2], "memory.events"), filepath.Join(cgroups, "unified", parts[2], "memory.events"))
		case strings.Contains(","+parts[1]+",", ",memory,"):
			files = append(files, filepath.Join(cgroups, "memory", parts[2], "memory.oom_control"))
		}
	}
	return append(files, filepath.Join(cgroups, "memory.events"), filepath.Join(cgroups, "memory", "memory.oom_control"))
}

func (o *oomCounter) read() uint64 {
	for _, f := range o.files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
				n, err := strconv.ParseUint(v, 10, 64)
				if err == nil {
					return n
				}
			}
		}
	}
	return 0
}

// grown reports whether there was a kill since before that explains no earlier exit.
func (o *oomCounter) grown(before uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.read()
	ok := n > max(before, o.seen)
	o.seen = max(o.seen, n)
	return ok
}
