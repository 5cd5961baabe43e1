package proc

import (
	"errors"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/agent/capture"
	"github.com/regroup-io/regroup/agent/traceback"
	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
)

// process is one worker with its group; pid is also the id of the group.
type process struct {
	d         *Driver
	worker    ident.Incarnation // empty = a spare that no worker has taken; guarded by the driver's mu until it has
	firstID   ident.Incarnation // in its first environment: the worker's, or the spare's own
	over      bool              // it has ended; guarded by the driver's mu
	cmd       *exec.Cmd
	pid       int
	capture   *capture.Capture
	oomBefore uint64 // like worker
	dir       string // in which the program runs; like worker
	mark      uint64 // see spawn
	confinement
	report    func(worker.Input)
	announced chan struct{} // closed once its start as a worker was reported
	examined  atomic.Bool   // examine runs

	mu     sync.Mutex
	reaped bool // the pid may be reused
	killed bool // by this agent
}

func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = syscall.Kill(-p.pid, sig) // fails only if the group has just ended
	}
}

func (p *process) kill() {
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	p.signal(syscall.SIGKILL)
	p.group.Kill()
}

// wait returns how the process ended, once no process of its group is left.
func (p *process) wait() worker.ProcessExited {
	// Wait without reaping: while the leader is a zombie, its pid, which is the id of the group,
	// cannot be reused.
	for {
		err := unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	at := time.Now()
	p.signal(syscall.SIGKILL)
	p.group.Kill()
	p.mu.Lock()
	p.reaped = true
	killed := p.killed
	p.mu.Unlock()
	err := p.cmd.Wait()
	x := worker.ProcessExited{ExitCode: p.cmd.ProcessState.ExitCode()}
	if st, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		x.ExitCode, x.Number = -1, int(st.Signal())
		x.Signal = unix.SignalName(st.Signal())
	} else if err != nil && x.ExitCode == 0 {
		x.ExitCode = 1
	}
	p.d.mu.Lock() // a worker may have taken it just before
	before, dir := p.oomBefore, p.dir
	p.d.mu.Unlock()
	oom := p.d.oom.Grown(before)
	x.OOM = oom && x.Signal == "SIGKILL" && !killed
	if p.group.LimitsMemory() { // its own counter; a program may fail because the kernel has killed its child
		x.OOM = p.group.OOMKills() > 0 && (x.Signal == "SIGKILL" || x.ExitCode > 0) && !killed
	}
	p.capture.End()
	x.Lines = p.capture.Lines()
	if x.ExitCode != 0 {
		uncaught := x.ExitCode == 1 || x.ExitCode == 2 || slices.Contains(tables.OwnSignals, x.Signal)
		if x.Exception = p.capture.Exception(uncaught, at); x.Exception != nil {
			traceback.Within(x.Exception, dir)
		}
	}
	x.Age = time.Since(at)
	return x
}
