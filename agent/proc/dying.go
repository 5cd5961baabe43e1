package proc

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/agent/procfs"
	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/ident"
)

// A process can be waited for only when the kernel has reclaimed its memory: 50 to 190 ms after the
// SIGKILL for 700 MB. That it will end is visible in procfs from the signal on, except while a
// thread takes the signal, which is then no longer pending and not yet among the flags. Nothing
// wakes a reader at that moment: a pidfd becomes readable with the end, like waitid. A worker whose
// peers have lost it is therefore looked at for a short time, often: a Python program closes its
// sockets some time before it ends.
const (
	examineEvery = time.Millisecond
	examineFor   = 100 * time.Millisecond
)

// Examine implements agent.Driver.
func (d *Driver) Examine(id ident.Incarnation) {
	p := d.find(id)
	if p == nil || p.examined.Swap(true) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.over {
		d.waits.Go(func() { p.examine() })
	}
}

// examine reports the process as dying as soon as that is certain. It gives up when the process has
// ended, which is reported anyway, and after examineFor.
func (p *process) examine() {
	again := time.NewTicker(examineEvery)
	defer again.Stop()
	defer p.examined.Store(false)
	for until := time.Now().Add(examineFor); time.Now().Before(until); <-again.C {
		dying, reaped := p.dying()
		switch {
		case reaped:
			return
		case dying != nil:
			p.report(*dying)
			return
		}
	}
}

// dying returns how the process will end, nil if that is not certain.
func (p *process) dying() (dying *worker.ProcessDying, reaped bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return nil, true
	}
	pid := strconv.Itoa(p.pid)
	if !p.d.dying(pid) {
		return nil, false
	}
	dying = &worker.ProcessDying{Worker: p.worker}
	t, _ := p.d.proc.Task(pid)
	switch status := t.Status; {
	case status.Signaled():
		dying.Number, dying.Signal = int(status.Signal()), unix.SignalName(status.Signal())
	case status.Exited():
		dying.ExitCode = status.ExitStatus()
	}
	return dying, false
}

// dying reports whether a process is certain to end: all of its threads are. The first thread alone
// says little, because it may end before the others. It looks twice, and the second time must find
// no thread that was not there the first time: a thread may start another and then end, and execve
// ends all threads but one, which then bears the number of the first.
func (d *Driver) dying(pid string) bool {
	if t, _ := d.proc.Task(pid); !dying(t) {
		return false // the usual answer, which costs the reading of one file
	}
	var before []string
	for look := range 2 {
		tasks, err := os.ReadDir(filepath.Join(d.opt.Proc, pid, "task"))
		if err != nil || len(tasks) == 0 {
			return false
		}
		var now []string
		for _, e := range tasks {
			if t, found := d.proc.Task(pid, "task", e.Name()); found && !dying(t) {
				return false
			}
			now = append(now, e.Name())
		}
		if look > 0 && slices.ContainsFunc(now, func(t string) bool { return !slices.Contains(before, t) }) {
			return false
		}
		before = now
	}
	return true
}

// Flags of a task in field 9 of its stat file (include/linux/sched.h).
const (
	exiting  = 0x4   // PF_EXITING: it has begun to exit
	signaled = 0x400 // PF_SIGNALED: a signal ends it, perhaps after a core dump
)

// dying reports whether a thread runs no further instruction of its program.
func dying(t procfs.Task) bool {
	const killed = 1 << (unix.SIGKILL - 1)
	return t.State == 'Z' || t.State == 'X' || t.Flags&(exiting|signaled) != 0 || t.Pending&killed != 0
}
