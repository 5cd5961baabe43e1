// Package spawn starts processes of this program that others are told apart from by a mark.
//
// A mark is a resource limit, the one for POSIX message queues, which programs need least: every
// child inherits the limits of its parent, and loses them neither with its group or session nor
// with its environment or open files. A child has the mark from its first instruction only if its
// parent has it while it forks. So the limit of the whole process is changed for that time, and
// whatever else starts processes in this program uses Start, which waits until the limit is back.
package spawn

import (
	"math/rand/v2"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"
)

// leastQueues is the limit in bytes below which nothing is taken off it: then there is no mark.
const leastQueues = 128 << 10

var starting sync.Mutex

// Start is cmd.Start for a process without a mark.
func Start(cmd *exec.Cmd) error {
	starting.Lock()
	defer starting.Unlock()
	return cmd.Start()
}

// StartMarked is cmd.Start for a process that has a mark of its own, which it returns; 0 = this
// process may not set its limit.
func StartMarked(cmd *exec.Cmd) (mark uint64, err error) {
	starting.Lock()
	defer starting.Unlock()
	var have unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MSGQUEUE, &have) != nil || have.Cur < leastQueues {
		return 0, cmd.Start()
	}
	// At most half is taken off. An unlimited one becomes so large that nobody meets it.
	top := min(have.Cur, 1<<50)
	mark = top - 1 - rand.Uint64N(top/2)
	if unix.Setrlimit(unix.RLIMIT_MSGQUEUE, &unix.Rlimit{Cur: mark, Max: have.Max}) != nil {
		return 0, cmd.Start()
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_MSGQUEUE, &have) }() // it was so a moment ago
	return mark, cmd.Start()
}
