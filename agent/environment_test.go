package agent_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/agent/submitenv"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

const jobOrigin = "7f3a456789abcdef0123456789abcdef" // of mnist-7f3a

// submitted returns what a command in dir hands over for the job.
func submitted(t *testing.T, dir string) workerprotocol.SubmitEnvironment {
	t.Helper()
	e := workerprotocol.SubmitEnvironment{Origin: jobOrigin, Name: "mnist", Agent: "01AGENT", Dir: dir, Variables: [][]byte{[]byte("PATH=/opt/venv/bin")}}
	var err error
	if e.Root, err = submitenv.Identify("/"); err != nil {
		t.Fatal(err)
	}
	if e.DirID, err = submitenv.Identify(dir); err != nil {
		t.Fatal(err)
	}
	return e
}

// launched starts one worker of a job.
func (w *world) launched(revision uint64, s spec.Job) {
	w.t.Helper()
	s.Command = []string{"fake", "run=5s"}
	s.Recovery = spec.RecoveryInProcess
	m := member(0, -1, "")
	m.Attempt = int(revision)
	w.launch(events.Launch{Revision: revision, Phase: events.PhasePrepare, Generation: 1, Spec: s, Members: []events.LaunchMember{m}})
}

// TestWorkersInheritTheEnvironmentInWhichTheirJobWasSubmitted: its variables, and its directory
// unless the job names one. It is removed when the job ends, and not when the job leaves the node.
func TestWorkersInheritTheEnvironmentInWhichTheirJobWasSubmitted(t *testing.T) {
	for workdir, want := range map[string]string{"": t.TempDir(), "/data": "/data"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			defer w.wait()
			dir := want
			if workdir != "" {
				dir = "/"
			}
			if code := w.post(http.MethodPost, workerprotocol.PathEnvironment, -1, submitted(t, dir), nil); code != http.StatusNoContent {
				t.Fatalf("it is answered with %d", code)
			}
			job := spec.Job{Workdir: workdir, Processes: spec.Processes{SubmitEnvironment: jobOrigin}}
			w.launched(1, job)
			if s := w.driver.starts[0]; s.Dir != want || !slices.Equal(s.Variables, []string{"PATH=/opt/venv/bin"}) {
				t.Errorf("the worker runs in %s with %q", s.Dir, s.Variables)
			}
			stop := events.Launch{Revision: 2, Phase: events.PhaseStop, Generation: 1, Spec: job}
			w.launch(stop)
			w.launched(3, job)
			stop.Revision, stop.JobEnds = 4, true
			w.launch(stop)
			w.launched(5, job)
			if len(w.driver.starts) != 3 {
				t.Fatalf("%d starts, want 3", len(w.driver.starts))
			}
			if s := w.driver.starts[1]; s.Dir != want || s.Variables == nil {
				t.Errorf("back on the node it runs in %s with %q", s.Dir, s.Variables)
			}
			if s := w.driver.starts[2]; s.Variables != nil {
				t.Errorf("the environment outlives its job: %q", s.Variables)
			}
			if want := "regroup: this worker has the folder and the environment of the agent of node-a, not those in which the job was submitted: they were not handed to this node's agent"; !slices.ContainsFunc(w.lines, func(l string) bool { return strings.HasSuffix(l, want) }) {
				t.Errorf("it does not say so: %q", w.lines)
			}
		})
	}
}

// TestAnEnvironmentOfElsewhereIsRefused: of a command that sees other files, as one beside a
// container does, or that means another agent or other workers.
func TestAnEnvironmentOfElsewhereIsRefused(t *testing.T) {
	dir := t.TempDir()
	for name, change := range map[string]func(*workerprotocol.SubmitEnvironment){
		"root":   func(e *workerprotocol.SubmitEnvironment) { e.Root.Inode++ },
		"device": func(e *workerprotocol.SubmitEnvironment) { e.Root.Device++ },
		"folder": func(e *workerprotocol.SubmitEnvironment) { e.DirID.Inode++ },
		"absent": func(e *workerprotocol.SubmitEnvironment) { e.Dir += "/nowhere" },
		"agent":  func(e *workerprotocol.SubmitEnvironment) { e.Agent = "01OTHER" },
		"user":   func(e *workerprotocol.SubmitEnvironment) { e.User = "no-such-user" },
		"other":  func(e *workerprotocol.SubmitEnvironment) { e.User = "54321" }, // as root another one, else one that may not be
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			defer w.wait()
			e := submitted(t, dir)
			change(&e)
			if code := w.post(http.MethodPost, workerprotocol.PathEnvironment, -1, e, nil); code != http.StatusConflict {
				t.Errorf("%s: it is answered with %d", name, code)
			}
			w.launched(1, spec.Job{Processes: spec.Processes{SubmitEnvironment: jobOrigin}})
			if s := w.driver.starts[0]; s.Variables != nil || s.Dir != "" {
				t.Errorf("%s: the worker runs in %q with %q", name, s.Dir, s.Variables)
			}
		})
	}
}

// TestAnEnvironmentWhoseJobDoesNotComeExpires, and that of a job that is here does not.
func TestAnEnvironmentWhoseJobDoesNotComeExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.wait()
		here, other := submitted(t, t.TempDir()), submitted(t, t.TempDir())
		other.Origin = "8" + jobOrigin[1:]
		for _, e := range []workerprotocol.SubmitEnvironment{here, other} {
			if code := w.post(http.MethodPost, workerprotocol.PathEnvironment, -1, e, nil); code != http.StatusNoContent {
				t.Fatalf("it is answered with %d", code)
			}
		}
		w.launched(1, spec.Job{Processes: spec.Processes{SubmitEnvironment: jobOrigin}})
		old := time.Now().Add(-submitenv.KeepFor)
		files, err := filepath.Glob(filepath.Join(filepath.Dir(w.agent.Socket()), "submitted", "*"))
		if err != nil || len(files) != 2 {
			t.Fatalf("files %q, %v", files, err)
		}
		for _, f := range files {
			if err := os.Chtimes(f, old, old); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour + time.Second) // virtual
		synctest.Wait()
		for _, f := range files {
			_, err := os.Stat(f)
			if is, want := err == nil, strings.Contains(f, jobOrigin); is != want {
				t.Errorf("%s is there: %v, want %v", f, is, want)
			}
		}
	})
}
