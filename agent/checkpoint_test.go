package agent_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// TestAJobHasAFolderForCheckpointsUntilItEnds, unless it names its own or recovers by restart. Its
// workers ask for the space.
func TestAJobHasAFolderForCheckpointsUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.wait()
		w.launched(1, spec.Job{})
		folder := w.driver.starts[0].Env[workerprotocol.EnvCheckpointDefaultDir]
		if want := filepath.Join(filepath.Dir(w.agent.Socket()), "regroup-checkpoints", string(job)); folder != want {
			t.Fatalf("the folder is %q, want %q", folder, want)
		}
		ask := func(bytes int64) int {
			return w.post(http.MethodPost, workerprotocol.PathCheckpoint, 0, workerprotocol.CheckpointRequest{Bytes: bytes}, nil)
		}
		for bytes, want := range map[int64]int{0: http.StatusBadRequest, 1 << 60: http.StatusBadRequest, 1000: http.StatusNoContent, 1001: http.StatusInsufficientStorage} {
			if code := ask(bytes); code != want {
				t.Errorf("%d bytes: %d, want %d", bytes, code, want)
			}
		}
		stop := events.Launch{Revision: 2, Phase: events.PhaseStop, Generation: 1, JobEnds: true}
		w.launch(stop)
		if code := ask(1000); code != http.StatusConflict && code != http.StatusForbidden { // or the worker has ended
			t.Errorf("a job that ends gets space: %d", code)
		}
		if _, err := os.Stat(folder); !os.IsNotExist(err) {
			t.Errorf("the folder outlives its job: %v", err)
		}
	})
}

func TestAJobWithAFolderOfItsOwnGetsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.wait()
		for i, dir := range []string{"/data/mnist", ""} { // the second wants none
			w.launched(uint64(2*i+1), spec.Job{Env: map[string]string{workerprotocol.EnvCheckpointDir: dir}})
			if folder, ok := w.driver.starts[i].Env[workerprotocol.EnvCheckpointDefaultDir]; ok {
				t.Errorf("it gets %q beside %q", folder, dir)
			}
			w.launch(events.Launch{Revision: uint64(2*i + 2), Phase: events.PhaseStop, Generation: 1})
		}
	})
}

// TestWorkersThatRestartGetNoFolder: they write checkpoints of their own.
func TestWorkersThatRestartGetNoFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.wait()
		restarts := spec.Job{Command: []string{"fake", "run=5s"}}
		w.launch(events.Launch{Revision: 1, Phase: events.PhasePrepare, Generation: 1, Spec: restarts, Members: []events.LaunchMember{member(0, -1, "")}})
		w.launch(events.Launch{Revision: 2, Phase: events.PhaseRun, Generation: 1, World: 1, Spec: restarts, Master: w.joins[0].Address, Members: []events.LaunchMember{member(0, 0, w.joins[0].Incarnation)}})
		for name := range w.driver.starts[0].Env {
			if strings.Contains(name, "CHECKPOINT") {
				t.Errorf("it has %s", name)
			}
		}
	})
}
