package cluster

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is what processes take together.
type Usage struct {
	CPU       time.Duration // of their own code and of the kernel's so far, in ticks of 10 ms
	Now, Most float64       // resident memory in MiB, and the sum of the most that each ever had
}

// Used returns the usage of processes.
func Used(pids ...int) (u Usage, err error) {
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return u, err
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		for _, ticks := range strings.Fields(rest)[11:13] {
			n, err := strconv.Atoi(ticks)
			if err != nil {
				return u, err
			}
			u.CPU += time.Duration(n) * 10 * time.Millisecond
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return u, err
		}
		for line := range strings.Lines(string(status)) {
			for name, into := range map[string]*float64{"VmRSS:": &u.Now, "VmHWM:": &u.Most} {
				if rest, ok := strings.CutPrefix(line, name); ok {
					kib, err := strconv.Atoi(strings.Fields(rest)[0])
					if err != nil {
						return u, err
					}
					*into += float64(kib) / 1024
				}
			}
		}
	}
	return u, nil
}
