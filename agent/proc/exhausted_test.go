package proc

import (
	"syscall"
	"testing"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/ident"
)

// TestANodeWithoutDescriptorsIsAtFault starts a worker while no descriptor is left, and again when
// there are some. It is not parallel: the limit is that of the process.
func TestANodeWithoutDescriptorsIsAtFault(t *testing.T) {
	r := newRig(t, Options{})
	var had syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &had); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &had); err != nil {
			t.Fatal(err)
		}
	}
	defer restore()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 3, Max: had.Max}); err != nil {
		t.Fatal(err)
	}
	r.start("true")
	f := next[worker.ProcessFailedToStart](r)
	restore()
	if !f.NodeFault {
		t.Errorf("the command is blamed: %+v", f)
	}
	r.startWith(worker.StartProcess{Worker: r.id + ident.Incarnation("2"), Command: []string{"true"}})
	next[worker.ProcessStarted](r)
	if x := next[worker.ProcessExited](r); x.ExitCode != 0 {
		t.Errorf("the next worker ends by %+v", x)
	}
}
