package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/regroup-io/regroup/e2e/traces/tree"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// The program of docs/traces.md, and how many spans each of its workers has.
const (
	document    = "docs/traces.md"
	epochs      = 10
	scriptRanks = 2
)

// example writes the program of the document into a file.
func example(dir string) (path string, err error) {
	text, err := os.ReadFile(document)
	if err != nil {
		return "", err
	}
	_, program, _ := strings.Cut(string(text), "```python\n")
	program, _, found := strings.Cut(program, "```\n")
	if !found {
		return "", fmt.Errorf("%s has no Python program", document)
	}
	path = filepath.Join(dir, "example.py")
	return path, os.WriteFile(path, []byte(program), 0o600)
}

// script runs the program of the document as a job, with a Python that has OpenTelemetry.
func (b *job) script(ctx context.Context, python string) (events.JobID, error) {
	program, err := example(b.Processes.Dir)
	if err != nil {
		return "", err
	}
	packages, err := filepath.Abs("python")
	if err != nil {
		return "", err
	}
	c, err := b.gateway(nil)
	if err != nil {
		return "", err
	}
	id, err := c.Submit(ctx, spec.Job{
		Name: "script", Command: []string{python, program}, Workers: spec.Workers{Min: scriptRanks, Max: scriptRanks},
		Env: map[string]string{"OTEL_SERVICE_NAME": "script", "PYTHONPATH": packages},
	})
	if err != nil {
		return "", err
	}
	v, err := b.JobIs(ctx, id, "it has ended", func(v events.JobView) bool { return v.State.Terminal() })
	if err == nil && v.State != events.JobStateSucceeded {
		err = fmt.Errorf("%s is %s: %s", id, v.State, v.Reason)
	}
	return id, err
}

// program checks the trace of the document's program: each of its spans is below the process of its
// worker, and within it.
func (c *checker) program(id string) {
	for _, run := range tree.Named(c.traces[id], "worker", "worker process") {
		below := 0
		for _, s := range tree.Named(c.traces[id], "script", "epoch") {
			if s.Parent == run.ID && tree.Within(s, run) {
				below++
			}
		}
		if below != epochs {
			c.say("trace %s: %s has %d spans of its program below it, not %d", id, run, below, epochs)
		}
	}
	if n := len(tree.Named(c.traces[id], "worker", "worker process")); n != scriptRanks {
		c.say("trace %s has %d workers, not %d", id, n, scriptRanks)
	}
}
