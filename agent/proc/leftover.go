package proc

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
)

// record is the file of one process. Within one boot, pid and start time together identify a
// process.
type record struct {
	PID         int               `json:"pid"`   // and group
	Agent       int               `json:"agent"` // pid of the agent
	Start       uint64            `json:"start"`
	Boot        string            `json:"boot"`
	Incarnation ident.Incarnation `json:"incarnation"`
	Job         ident.JobID       `json:"job"`
	Place       ident.Place       `json:"place"`
	Attempt     int               `json:"attempt"`
	Generation  ident.Generation  `json:"generation"`
	Mark        uint64            `json:"mark,omitempty"`
	FirstID     ident.Incarnation `json:"born,omitempty"`   // incarnation in its first environment, if it was a spare
	Spare       bool              `json:"spare,omitempty"`  // no worker has taken it
	Groups      []string          `json:"groups,omitempty"` // directories of its control group
	Span        *events.Span      `json:"span,omitempty"`   // of a worker, to be recorded when it has ended
}

func (d *Driver) dir() string { return filepath.Join(d.opt.StateDir, "workers") }

func (d *Driver) file(id ident.Incarnation) string {
	return filepath.Join(d.dir(), string(id)+".json")
}

// remember writes the file. An error does not stop the worker: its environment still identifies it.
func (d *Driver) remember(s worker.StartProcess, p *process) {
	_, start, _ := d.stat(p.pid)
	r := record{
		PID: p.pid, Agent: os.Getpid(), Start: start, Boot: d.boot(), Incarnation: s.Worker, Job: s.Job, Place: s.Place, Attempt: s.Attempt,
		Generation: s.Generation, Mark: p.mark, Spare: s.Place.Node == "", Groups: p.group.dirs(),
	}
	if s.Span.Self != "" {
		r.Span = &s.Span
	}
	if p.firstID != s.Worker {
		r.FirstID = p.firstID
	}
	b, err := json.Marshal(r)
	if err == nil {
		tmp := d.file(s.Worker) + ".new"
		if os.WriteFile(tmp, b, 0o600) == nil {
			_ = os.Rename(tmp, d.file(s.Worker))
			if r.FirstID != "" {
				_ = os.Remove(d.file(r.FirstID))
			}
		}
	}
}

// Fence implements agent.Driver.
func (d *Driver) Fence(ctx context.Context) ([]worker.Orphaned, error) {
	found, files, err := d.killLeft(ctx, func(record) bool { return true })
	if err != nil {
		return found, err
	}
	for _, f := range files {
		_ = os.Remove(f)
	}
	return found, nil
}

// killLeft kills the processes of the records that which selects, until none is left or ctx ends.
func (d *Driver) killLeft(ctx context.Context, which func(record) bool) (found []worker.Orphaned, files []string, err error) {
	files, err = filepath.Glob(filepath.Join(d.dir(), "*.json"))
	if err != nil {
		return nil, nil, errcode.Errorf(errcode.Internal, "proc: list leftovers: %w", err)
	}
	of := processSet{ids: map[ident.Incarnation]bool{}, marks: map[uint64]bool{}}
	var groups []record
	for _, f := range files {
		var r record
		b, err := os.ReadFile(f)
		if err != nil || json.Unmarshal(b, &r) != nil || r.Incarnation == "" {
			_ = os.Remove(f) // incomplete because of a crash
			continue
		}
		if !which(r) {
			continue
		}
		if !r.Spare {
			o := worker.Orphaned{
				Job: r.Job, Place: r.Place, Attempt: r.Attempt, Worker: r.Incarnation, Generation: r.Generation, PID: r.PID,
			}
			if r.Span != nil {
				o.Span = *r.Span
			}
			found = append(found, o)
		}
		if r.Boot == d.boot() {
			of.ids[r.Incarnation] = true
			if r.FirstID != "" {
				of.ids[r.FirstID] = true
			}
			if r.Mark > 0 {
				of.marks[r.Mark] = true
			}
			groups = append(groups, r)
			d.endLeft(r.Groups)
		}
	}
	return found, files, d.killAll(ctx, groups, of)
}

// kin identifies the processes of workers.
type processSet struct {
	ids   map[ident.Incarnation]bool // in their environment
	marks map[uint64]bool
}

// marks returns the set of one mark, or nil for 0.
func marks(m uint64) map[uint64]bool {
	if m == 0 {
		return nil
	}
	return map[uint64]bool{m: true}
}

func (d *Driver) killAll(ctx context.Context, groups []record, of processSet) error {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		left := d.sweep(of)
		for _, r := range groups {
			if state, start, ok := d.stat(r.PID); ok && start == r.Start && state != 'Z' {
				_ = syscall.Kill(-r.PID, syscall.SIGKILL)
				left++
			}
		}
		if left == 0 {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return errcode.Errorf(errcode.Unavailable, "proc: %d processes of this agent's earlier incarnation do not die", left)
		}
	}
}

// sweepFor limits the search for processes that a worker has left behind, which may start others
// faster than they are found.
const sweepFor = 2 * time.Second

// sweepAll sweeps until nothing is found: a process may start others just before it is killed.
func (d *Driver) sweepAll(of processSet) {
	ctx, cancel := context.WithTimeout(context.Background(), sweepFor)
	defer cancel()
	_ = d.killAll(ctx, nil, of)
}

// sweep kills every process of these workers, whatever its group, and returns how many it found.
func (d *Driver) sweep(of processSet) int {
	if len(of.ids)+len(of.marks) == 0 {
		return 0
	}
	n := 0
	entries, _ := os.ReadDir(d.opt.Proc)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || !d.isOneOf(pid, of) {
			continue
		}
		if state, _, ok := d.stat(pid); ok && state != 'Z' && state != 'X' {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			n++
		}
	}
	return n
}

// isKin checks the environment if it names a worker, and otherwise the mark: two agents of a
// machine may choose the same mark. An agent that is root in a container may lack the capability to
// read the environment of workers that are other users; the mark is readable for all.
func (d *Driver) isOneOf(pid int, of processSet) bool {
	b, err := os.ReadFile(filepath.Join(d.opt.Proc, strconv.Itoa(pid), "environ"))
	if err != nil && (!os.IsPermission(err) || os.Geteuid() != 0) {
		return false // gone, or not a worker of this agent
	}
	for v := range bytes.SplitSeq(b, []byte{0}) {
		if id, ok := bytes.CutPrefix(v, []byte(worker.EnvIncarnation+"=")); ok {
			return of.ids[ident.Incarnation(id)]
		}
	}
	return len(of.marks) > 0 && of.marks[d.markOf(pid)]
}

// stat reads a process's state and its start time in clock ticks since boot.
func (d *Driver) stat(pid int) (state byte, start uint64, ok bool) {
	b, err := os.ReadFile(filepath.Join(d.opt.Proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, 0, false
	}
	// The name, in parentheses, may contain anything: count fields after the last parenthesis
	// (proc(5): state is field 3, starttime 22).
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return 0, 0, false
	}
	start, err = strconv.ParseUint(f[19], 10, 64)
	return f[0][0], start, err == nil
}

func (d *Driver) boot() string {
	b, _ := os.ReadFile(filepath.Join(d.opt.Proc, "sys/kernel/random/boot_id"))
	return strings.TrimSpace(string(b))
}

// markOf returns the mark of a process (see spawn), or 0 if it cannot be read.
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
