package proc

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/regroup-io/regroup/agent/worker"
)

// TestAWorkerInheritsTheEnvironmentOfASubmitter in place of the agent's, whose program it finds in
// its PATH. Of the agent's stay what limits workers to a part of the machine and their settings.
// Neither leads to the control plane.
func TestAWorkerInheritsTheEnvironmentOfASubmitter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "own-env"), []byte("#!/bin/sh\npwd; exec env\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, Options{Environ: []string{
		"PATH=/nowhere", "VIRTUAL_ENV=/agent", "CUDA_VISIBLE_DEVICES=2,3", "HIP_VISIBLE_DEVICES=4", "REGROUP_CHECKPOINT_DIR=/agent", "REGROUP_GPU=0", "OTEL_EXPORTER_OTLP_ENDPOINT=http://agent",
	}})
	path := "PATH=" + dir + ":" + os.Getenv("PATH")
	client := Inherited([]string{path, "HF_HOME=/client", "REGROUP_GPU=1", "REGROUP_SECRET=s", "NATS_URL=n", "RANK=9", "HIP_VISIBLE_DEVICES=0", "JOB=2", "broken", "=x"})
	if want := []string{path, "HF_HOME=/client", "REGROUP_GPU=1", "HIP_VISIBLE_DEVICES=0", "JOB=2"}; !slices.Equal(client, want) {
		t.Errorf("of a command it may inherit %q", client)
	}
	r.startWith(worker.StartProcess{
		Worker: r.id, Command: []string{"own-env"}, Dir: dir, Env: map[string]string{"JOB": "1"},
		Inherited: worker.Inherited{Variables: append(client, "REGROUP_SERVER=nats://client")},
	})
	next[worker.ProcessStarted](r)
	next[worker.ProcessExited](r)
	got := slices.DeleteFunc(r.output(), func(l string) bool { return slices.Contains([]string{"PWD=" + dir, "SHLVL=1", "_=/usr/bin/env"}, l) }) // of the shell
	slices.Sort(got)
	want := []string{dir, path, "CUDA_VISIBLE_DEVICES=2,3", "HF_HOME=/client", "HIP_VISIBLE_DEVICES=0", "JOB=1", "OTEL_EXPORTER_OTLP_ENDPOINT=http://agent", "REGROUP_CHECKPOINT_DIR=/agent", "REGROUP_GPU=1"}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the worker has %q, want %q", got, want)
	}
}

// TestASpareInheritsTheEnvironmentOfASubmitter: the interpreter that is found in its PATH.
func TestASpareInheritsTheEnvironmentOfASubmitter(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{Environ: []string{"PATH=/nowhere"}})
	dir := t.TempDir()
	from := worker.Inherited{Variables: []string{"PATH=" + os.Getenv("PATH"), "CLIENT=yes"}}
	command := []string{"python3", "-c", "import os; print(os.environ['CLIENT'], os.getcwd())"}
	failed := make(chan string, 8)
	r.d.KeepSpares(worker.KeepSpares{Job: "j-0000", Count: 1, Command: command, Dir: dir, Inherited: from}, func(s worker.SparesKept) {
		if s.Problem != "" {
			failed <- s.Problem
		}
	})
	until(t, "the spare is started", func() bool {
		select {
		case detail := <-failed:
			t.Fatal(detail)
		default:
		}
		r.d.mu.Lock()
		defer r.d.mu.Unlock()
		return len(r.d.spares["j-0000"].idle) == 1
	})
	r.d.mu.Lock()
	pid := r.d.spares["j-0000"].idle[0].p.pid
	r.d.mu.Unlock()
	s := r.workerOf(dir, command...)
	s.Inherited = from
	r.startWith(s)
	if started := next[worker.ProcessStarted](r); started.PID != pid {
		t.Errorf("the worker is process %d and not the spare %d", started.PID, pid)
	}
	next[worker.ProcessExited](r)
	if got := r.output(); !slices.Equal(got, []string{"yes " + dir}) {
		t.Errorf("it says %q", got)
	}
}
