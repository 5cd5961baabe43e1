package cluster

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory returns the resident size of a process now, and the most that it ever was, in MiB.
func Memory(pid int) (now, most float64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	found := 0
	for line := range strings.Lines(string(b)) {
		for name, into := range map[string]*float64{"VmRSS:": &now, "VmHWM:": &most} {
			if rest, ok := strings.CutPrefix(line, name); ok {
				kib, err := strconv.Atoi(strings.Fields(rest)[0])
				if err != nil {
					return 0, 0, err
				}
				*into = float64(kib) / 1024
				found++
			}
		}
	}
	if found != 2 {
		return 0, 0, fmt.Errorf("process %d has no resident size", pid)
	}
	return now, most, nil
}
