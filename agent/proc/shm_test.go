package proc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
)

// sharing starts one more worker of a job that has a /dev/shm of 8 MiB; 0 = that of the node.
func (r *rig) sharing(job ident.JobID, name string, size spec.Bytes, script string) {
	id := r.id + ident.Incarnation("-"+name)
	r.startWith(worker.StartProcess{
		Job: job, Worker: id, Command: []string{"sh", "-c", script}, Env: map[string]string{"REGROUP_INCARNATION": string(id)},
		Limits: spec.ProcessLimits{Shm: size},
	})
}

// ends waits for the start and the end of a worker, which must be a success.
func (r *rig) ends() {
	r.t.Helper()
	next[worker.ProcessStarted](r)
	if x := next[worker.ProcessExited](r); x.ExitCode != 0 || x.Signal != "" {
		r.t.Errorf("%+v; it wrote %q", x, r.output())
	}
}

// TestSharedMemoryOfAJob: its workers share it, nobody else sees it, it is bounded, and ends with
// the last of them. Workers after it are where the agent is.
func TestSharedMemoryOfAJob(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	const size = 8 << 20
	dir := t.TempDir()
	file := "/dev/shm/regroup-test-" + filepath.Base(dir)
	r := newRig(t, Options{})
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	// The first has it for as long as nobody writes into the fifo.
	gate := filepath.Join(dir, "gate")
	r.sharing("one-0001", "first", size, "echo mine > "+file+"; chmod 666 "+file+"; mkfifo "+gate+"; read line < "+gate)
	next[worker.ProcessStarted](r)
	until(t, "the first has written", func() bool { _, err := os.Stat(gate); return err == nil })
	r.sharing("one-0001", "second", size, "[ $(cat "+file+") = mine ] && [ $(pwd) = "+here+" ]")
	r.ends()
	r.sharing("one-0001", "third", size, "! head -c 9m /dev/zero > "+file+"-more")
	r.ends()
	if text := strings.Join(r.output(), " "); !strings.Contains(text, "No space left") {
		t.Errorf("a write beyond the limit ends with %q", text)
	}
	r.sharing("two-0002", "other", size, "! [ -e "+file+" ] && echo theirs > "+file)
	r.ends()
	r.sharing("three-0003", "without", 0, "! [ -e "+file+" ] && [ $(pwd) = "+here+" ] && [ $(readlink /proc/self/ns/mnt) = $(readlink /proc/$PPID/ns/mnt) ]")
	r.ends()
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the node has a file of the job: %v", err)
	}
	if err := os.WriteFile(gate, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	if x := next[worker.ProcessExited](r); x.ExitCode != 0 {
		t.Errorf("%+v", x)
	}
	until(t, "no memory is left", func() bool {
		r.d.shared.mu.Lock()
		defer r.d.shared.mu.Unlock()
		return len(r.d.shared.jobs) == 0
	})
	r.sharing("one-0001", "again", size, "! [ -e "+file+" ]")
	r.ends()
}
