package proc

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A worker's processes are recognised by its incarnation in their environment, and by a mark that none of them loses by leaving the
// group or the session, by an empty environment or by closing files: every child inherits the resource limits of its parent. The
// limit for POSIX message queues is the one that programs need least; a worker has a little less of it than its agent, by an amount of
// its own.

// leastQueues is the limit under which nothing is taken off: then there is no mark.
const leastQueues = 128 << 10

// marking keeps the limit of this process to one at a time: a child has it from its first moment only if its parent has it.
var marking sync.Mutex

// marked calls start, whose children get a mark, and returns it; 0 = they cannot have one. What another part of this process starts in
// the same instant gets it too, and may be ended with the worker; nothing of ours does that for long.
func marked(start func() error) (m uint64, err error) {
	marking.Lock()
	defer marking.Unlock()
	var have unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MSGQUEUE, &have) != nil || have.Cur < leastQueues {
		return 0, start()
	}
	// At most half is taken off; of no limit at all so much is left that nobody meets it.
	top := min(have.Cur, 1<<50)
	m = top - 1 - rand.Uint64N(top/2)
	if unix.Setrlimit(unix.RLIMIT_MSGQUEUE, &unix.Rlimit{Cur: m, Max: have.Max}) != nil {
		return 0, start()
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_MSGQUEUE, &have) }() // it was so a moment ago
	return m, start()
}

// markOf reads the mark of a process; 0 = it cannot be read.
func (d *Driver) markOf(pid int) uint64 {
	b, err := os.ReadFile(filepath.Join(d.opt.Proc, strconv.Itoa(pid), "limits"))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("Max msgqueue size")); ok {
			fields := strings.Fields(string(rest))
			if len(fields) == 0 {
				return 0
			}
			m, err := strconv.ParseUint(fields[0], 10, 64)
			if err != nil {
				return 0 // unlimited
			}
			return m
		}
	}
	return 0
}
