package proc

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/agent/procfs"
	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
)

// record is the file of one process. Within one boot, pid and start time together identify a
// process.
type record struct {
	PID         int               `json:"pid"`   // and group; 0 = it was about to start
	Agent       int               `json:"agent"` // pid of the agent
	Start       uint64            `json:"start"`
	Boot        string            `json:"boot"`
	Incarnation ident.Incarnation `json:"incarnation"`
	Job         ident.JobID       `json:"job"`
	Place       ident.Place       `json:"place"`
	Attempt     int               `json:"attempt"`
	Generation  ident.Generation  `json:"generation"`
	Mark        uint64            `json:"mark,omitempty"`
	FirstID     ident.Incarnation `json:"first_id,omitempty"` // incarnation in its first environment, if it was a spare
	Spare       bool              `json:"spare,omitempty"`    // no worker has taken it
	Groups      []string          `json:"groups,omitempty"`   // directories of its control group
	Span        *events.Span      `json:"span,omitempty"`     // of a worker, to be recorded when it has ended
}

func (d *Driver) dir() string { return filepath.Join(d.opt.StateDir, "workers") }

func (d *Driver) file(id ident.Incarnation) string {
	return filepath.Join(d.dir(), string(id)+".json")
}

// remember writes the file. An error does not stop the worker: its environment still identifies it.
func (d *Driver) remember(s worker.StartProcess, p *process) {
	var t procfs.Task
	if p.pid > 0 {
		t, _ = d.proc.Process(p.pid)
	}
	r := record{
		PID: p.pid, Agent: os.Getpid(), Start: t.Start, Boot: d.proc.Boot(), Incarnation: s.Worker, Job: s.Job, Place: s.Place, Attempt: s.Attempt,
		Generation: s.Generation, Mark: p.mark, Spare: s.Place.Node == "", Groups: p.group.Dirs(),
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
	var of processSet
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
		if r.Boot == d.proc.Boot() {
			of.ids, of.marks = append(of.ids, r.Incarnation, r.FirstID), append(of.marks, r.Mark)
			groups = append(groups, r)
			d.groups.EndLeft(r.Groups)
		}
	}
	return found, files, d.killAll(ctx, groups, of)
}

// processSet identifies the processes of workers.
type processSet struct {
	ids   []ident.Incarnation // in their environment; empty ones stand for none
	marks []uint64            // 0 stands for none
}

// killAll kills processes until a search finds none. Where some may still run it needs two such
// searches in a row: one that forks and ends while processes are listed is in the list, and already
// gone, while what it has forked is not listed.
func (d *Driver) killAll(ctx context.Context, groups []record, of processSet) error {
	searches := 1
	if len(groups) > 0 {
		searches = 2
	}
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		left := d.sweep(of)
		for _, r := range groups {
			if t, ok := d.proc.Process(r.PID); ok && r.PID > 0 && t.Start == r.Start && t.State != 'Z' {
				_ = syscall.Kill(-r.PID, syscall.SIGKILL)
				left++
			}
		}
		if left > 0 {
			searches = 2
		} else if searches--; searches == 0 {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return errcode.Errorf(errcode.Unavailable, "proc: %d processes of this agent's earlier incarnation do not die", left)
		}
	}
}

// sweepFor limits the search for processes that a worker has left, which may start others
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
	if len(of.ids) == 0 {
		return 0
	}
	n := 0
	entries, _ := os.ReadDir(d.opt.Proc)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || !d.isOneOf(pid, of) {
			continue
		}
		if t, ok := d.proc.Process(pid); ok && t.State != 'Z' && t.State != 'X' {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			n++
		}
	}
	return n
}

// isOneOf checks the environment if it names a worker, and otherwise the mark: two agents of a
// machine may choose the same mark. An agent that is root in a container may lack the capability to
// read the environment of workers that are other users; the mark is readable for all.
func (d *Driver) isOneOf(pid int, of processSet) bool {
	b, err := d.proc.Environ(strconv.Itoa(pid))
	if err != nil && (!os.IsPermission(err) || os.Geteuid() != 0) {
		return false // it has ended, or is no worker of this agent
	}
	if id, ok := procfs.Variable(b, worker.EnvIncarnation); ok {
		return id != "" && slices.Contains(of.ids, ident.Incarnation(id))
	}
	mark := d.proc.MessageQueueLimit(pid)
	return mark > 0 && slices.Contains(of.marks, mark)
}
