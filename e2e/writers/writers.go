// Package writers shows with a file that all workers of a job write who of them wrote when, and so
// whether two copies of a rank ever lived at a time.
package writers

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Program is a Python program of a job that is restarted as a group: it appends to the file in its
// argument, fifty times a second, who it is. It ends when a file of that name and ".over" exists.
const Program = `
import os, sys, time
who = " ".join((os.environ["REGROUP_GENERATION"], os.environ["RANK"], str(os.getpid())))
out = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
while not os.path.exists(sys.argv[1] + ".over"):
    os.write(out, ("%d %s\n" % (time.time_ns(), who)).encode())
    time.sleep(0.02)
`

// Entry is one line of the file.
type Entry struct {
	At               int64 // ns since 1970
	Generation, Rank int
	PID              int
}

// Read returns what has been written so far; nothing if there is no file yet.
func Read(file string) (all []Entry, err error) {
	b, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(b), "\n")
	for _, line := range lines[:len(lines)-1] { // the last one may be half
		var e Entry
		if n, err := fmt.Sscan(line, &e.At, &e.Generation, &e.Rank, &e.PID); n != 4 || err != nil {
			return nil, fmt.Errorf("%s: line %s: %w", file, strconv.Quote(line), err)
		}
		all = append(all, e)
	}
	return all, nil
}

// End makes all writers of a file end.
func End(file string) error { return os.WriteFile(file+".over", nil, 0o600) }

// Ranks returns how many ranks of a generation have written.
func Ranks(all []Entry, generation int) int {
	seen := map[int]bool{}
	for _, e := range all {
		if e.Generation == generation {
			seen[e.Rank] = true
		}
	}
	return len(seen)
}

// Alone returns an error if a process of an earlier generation wrote after one of a later
// generation.
func Alone(all []Entry) error {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Entry) int { return int(a.At - b.At) })
	newest := Entry{}
	for _, e := range all {
		if e.Generation < newest.Generation {
			return fmt.Errorf("rank %d of g%d (pid %d) wrote %s after rank %d of g%d (pid %d) had begun", e.Rank, e.Generation, e.PID,
				time.Duration(e.At-newest.At), newest.Rank, newest.Generation, newest.PID)
		}
		if e.Generation > newest.Generation {
			newest = e
		}
	}
	return nil
}
