package cluster

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// Stacks ends a process with SIGQUIT and returns what its goroutines did then: a line for each
// stack with functions of this repository, from the innermost outwards, with how many had it. It is
// for a process that has not done what a test waits for.
func (p *Processes) Stacks(ctx context.Context, name string) (string, error) {
	before := len(p.Log(name, 0))
	if err := p.End(ctx, name, syscall.SIGQUIT); err != nil {
		return "", err
	}
	return stacks(p.Log(name, 0)[before:]), nil
}

const repository = "github.com/regroup-io/regroup/"

// stacks condenses what the runtime of Go prints.
func stacks(printed []byte) string {
	count, order := map[string]int{}, []string{}
	for block := range bytes.SplitSeq(printed, []byte("\n\n")) {
		lines := strings.Split(strings.TrimSpace(string(block)), "\n")
		_, state, ok := strings.Cut(lines[0], "[")
		if !strings.HasPrefix(lines[0], "goroutine ") || !ok {
			continue
		}
		var calls []string
		for i, line := range lines[1:] {
			if strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "created by ") {
				continue
			}
			name, ours := strings.CutPrefix(line, repository)
			if ours || i == 0 {
				calls = append(calls, name[:max(0, strings.LastIndexByte(name, '('))])
			}
		}
		if !slices.ContainsFunc(lines[1:], func(s string) bool { return strings.HasPrefix(s, repository) }) {
			continue
		}
		stack := "[" + strings.TrimSuffix(state, ":") + " " + strings.Join(calls, " < ")
		if count[stack]++; count[stack] == 1 {
			order = append(order, stack)
		}
	}
	var all strings.Builder
	for _, stack := range order {
		fmt.Fprintf(&all, "%d %s\n", count[stack], stack)
	}
	return all.String()
}
