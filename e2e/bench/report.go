package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/report"
)

const head = `# Benchmarks

Written by ` + "`make bench`" + `. Wall time seen from outside, in milliseconds. "first step" means that the fact of a worker's first good
step has arrived at the measuring process. Other programs may share the machine: read medians.
`

// table starts a section's table.
func table() string {
	return "Measured on " + report.Machine() + `.

| what | trials | min | median | p90 | p99 | max | goal |
|---|---|---|---|---|---|---|---|
`
}

func row(what string, d []time.Duration, goal string) string {
	if len(d) == 0 {
		return ""
	}
	slices.Sort(d)
	at := func(q float64) string {
		i := min(int(q*float64(len(d))), len(d)-1)
		return fmt.Sprintf("%.1f", float64(d[i])/float64(time.Millisecond))
	}
	return fmt.Sprintf("| %s | %d | %s | %s | %s | %s | %s | %s |\n", what, len(d), at(0), at(0.5), at(0.9), at(0.99), at(1), goal)
}

// measureIdle measures memory and CPU time of the idle process.
func measureIdle(ctx context.Context, c *single, watch time.Duration) (string, error) {
	pid, _ := c.processes.PID(up)
	settle := time.NewTimer(5 * time.Second)
	defer settle.Stop()
	select {
	case <-settle.C:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	before, err := cpuTime(pid)
	if err != nil {
		return "", err
	}
	began := time.Now()
	t := time.NewTimer(watch)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	after, err := cpuTime(pid)
	if err != nil {
		return "", err
	}
	share := 100 * float64(after-before) / float64(time.Since(began))
	rss, err := field(fmt.Sprintf("/proc/%d/status", pid), "VmRSS")
	if err != nil {
		return "", err
	}
	kib, err := strconv.Atoi(strings.Fields(rss)[0])
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("| idle all-in-one process: resident MiB | 1 | | %.1f | | | | 80 |\n| idle all-in-one process: %% of a core over %s | 1 | | %.1f | | | | 3 |\n",
		float64(kib)/1024, watch, share), nil
}

// cpuTime is the CPU time of a process, from /proc/pid/stat in ticks of 10 ms.
func cpuTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	user, err := strconv.Atoi(f[11])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(f[12])
	if err != nil {
		return 0, err
	}
	return time.Duration(user+system) * 10 * time.Millisecond, nil
}

func field(file, key string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v), nil
		}
	}
	return "", fmt.Errorf("%s has no %s", file, key)
}
