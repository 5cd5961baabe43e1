// Package spawn starts processes of this program, some of which carry a mark by which they are
// recognised.
//
// A mark is a resource limit, that for POSIX message queues, which programs rarely need. Every
// child inherits the limits of its parent, and loses them neither with its group or session nor
// with its environment or open files. A child has the mark from its first instruction only if its
// parent has it while it forks. So the limit of the whole process is changed for that time, and all
// other code that starts processes in this program uses Start, which waits until the limit is
// restored.
package spawn

import (
	"errors"
	"math/rand/v2"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"
)

// leastQueues is the limit in bytes below which no mark is used.
const leastQueues = 128 << 10

var starting sync.Mutex

// Start is cmd.Start for a process without a mark.
func Start(cmd *exec.Cmd) error {
	starting.Lock()
	defer starting.Unlock()
	return cmd.Start()
}

// Mark returns a mark for StartMarked; 0 = this process may not set its limit.
func Mark() uint64 {
	starting.Lock()
	defer starting.Unlock()
	var have unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MSGQUEUE, &have) != nil || have.Cur < leastQueues {
		return 0
	}
	// The mark lowers the limit by at most half; no process reaches the one for no limit.
	top := min(have.Cur, 1<<50)
	mark := top - 1 - rand.Uint64N(top/2)
	if unix.Setrlimit(unix.RLIMIT_MSGQUEUE, &unix.Rlimit{Cur: mark, Max: have.Max}) != nil {
		return 0
	}
	_ = unix.Setrlimit(unix.RLIMIT_MSGQUEUE, &have) // restoring the previous limit cannot fail
	return mark
}

// StartMarked is cmd.Start with a mark that Mark has returned; 0 = without one.
func StartMarked(cmd *exec.Cmd, mark uint64) error {
	if mark == 0 {
		return Start(cmd)
	}
	starting.Lock()
	defer starting.Unlock()
	var have unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MSGQUEUE, &have); err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_MSGQUEUE, &unix.Rlimit{Cur: mark, Max: have.Max}); err != nil {
		return err
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_MSGQUEUE, &have) }()
	return cmd.Start()
}

// Exhausted reports whether an error means that this machine has no process, descriptor, memory or
// disk left. It says nothing about the command.
func Exhausted(err error) bool {
	for _, e := range []error{unix.EAGAIN, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOSPC, unix.EDQUOT} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
