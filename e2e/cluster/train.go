package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/e2e/record"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// Unlimited is the most failures that a job may have: faults are intended.
var Unlimited = 10_000

// Training is a job of e2e/recorder, whose samples can be counted without Regroup. Zero values are
// those of the recorder.
type Training struct {
	Name                        string
	Program                     string // empty = recorder in the folder of the binaries
	Workers                     spec.Workers
	Samples, Batch, CommitEvery int
	StepTime                    time.Duration
}

// Run is such a job.
type Run struct {
	Training
	Job  ident.JobID
	Dir  string      // of the records
	Tail record.Tail // of the records

	cluster *Cluster
}

// Train submits a training.
func (c *Cluster) Train(ctx context.Context, t Training) (*Run, error) {
	dir, err := os.MkdirTemp(c.Processes.Dir, "records-"+t.Name+"-")
	if err != nil {
		return nil, err
	}
	t.Program = cmp.Or(t.Program, filepath.Join(c.Options.Bin, "recorder"))
	t.Samples, t.Batch, t.CommitEvery, t.StepTime = cmp.Or(t.Samples, 6000), cmp.Or(t.Batch, 60), cmp.Or(t.CommitEvery, 10), cmp.Or(t.StepTime, 10*time.Millisecond)
	id, err := c.Client.Submit(ctx, spec.Job{
		Name: t.Name, Workers: t.Workers, Recovery: spec.RecoveryInProcess, Failures: spec.Failures{Max: &Unlimited},
		Command: []string{
			t.Program, "-dir", dir, "-samples", fmt.Sprint(t.Samples), "-batch", fmt.Sprint(t.Batch), "-commit-every", fmt.Sprint(t.CommitEvery),
			"-step-time", t.StepTime.String(),
		},
	})
	return &Run{Training: t, Job: id, Dir: dir, Tail: record.Tail{Dir: dir}, cluster: c}, err
}

// JobIs waits for a condition of the registry's view of a job.
func (c *Cluster) JobIs(ctx context.Context, id ident.JobID, what string, ok func(events.JobView) bool) (v events.JobView, err error) {
	return v, Until(ctx, func() (bool, error) {
		got, err := c.Client.Job(ctx, id)
		if err == nil {
			v = got
		}
		return err == nil && ok(v), errors.Join(err, fmt.Errorf("%s: waiting until %s; it is %s (%s), generation %s", id, what, v.State, v.Reason, v.Generation))
	})
}

// Trains waits until a generation above one makes steps with so many workers.
func (r *Run) Trains(ctx context.Context, above ident.Generation, world int) (g events.GenerationView, err error) {
	_, err = r.cluster.JobIs(ctx, r.Job, fmt.Sprintf("%d workers train in a generation above %s", world, above), func(v events.JobView) bool {
		if len(v.Generations) == 0 || v.State.Terminal() {
			return false
		}
		g = v.Generations[len(v.Generations)-1]
		return g.Ready && g.Generation > above && g.World == world
	})
	return g, err
}

// Makes waits until workers have recorded n more steps; each records its own.
func (r *Run) Makes(ctx context.Context, n int) error {
	if _, err := r.Tail.Poll(); err != nil { // the steps so far
		return err
	}
	return Until(ctx, func() (bool, error) {
		made, err := r.Tail.Poll()
		n -= made
		return n <= 0 && err == nil, errors.Join(err, fmt.Errorf("%s does not make %d more steps", r.Job, n))
	})
}

// Finish makes the workers do their last step.
func (r *Run) Finish() error { return os.WriteFile(filepath.Join(r.Dir, "finish"), nil, 0o600) }

// Ends waits for the end of the job and verifies it: the job has succeeded, and neither the ledger
// nor the records have a missing or repeated sample.
func (r *Run) Ends(ctx context.Context) (*record.History, record.Account, error) {
	v, err := r.cluster.JobIs(ctx, r.Job, "it ends", func(v events.JobView) bool { return v.State.Terminal() })
	if err != nil {
		return nil, record.Account{}, err
	}
	var wrong error
	if v.State != events.JobStateSucceeded {
		wrong = fmt.Errorf("%s: %s (%s), want succeeded", r.Job, v.State, v.Reason)
	}
	wrong = errors.Join(wrong, r.ledger(v.Ledger))
	h, err := record.Read(r.Dir)
	if err != nil {
		return nil, record.Account{}, errors.Join(wrong, err)
	}
	a, err := h.Check(uint64(r.Samples))
	wrong = errors.Join(wrong, err)
	if a.Missing > 0 || a.Repeated > 0 || a.Finished == 0 {
		wrong = errors.Join(wrong, fmt.Errorf("%s: by its records %d samples missing, %d repeated, %d workers found their state right", r.Job, a.Missing, a.Repeated, a.Finished))
	}
	return h, a, wrong
}

// ledger checks the ledger that the job has committed.
func (r *Run) ledger(l tables.Ledger) error {
	var want, total uint64
	for i := range uint64(r.Samples) {
		want += tables.SampleHash(i)
	}
	for _, e := range l.Epochs {
		total += e.Count
		if e.Done && (e.Count != uint64(r.Samples) || e.Sum != want) {
			return fmt.Errorf("%s: epoch %d of the ledger counts %d samples of %d, sum %x, want %x", r.Job, e.Epoch, e.Count, r.Samples, e.Sum, want)
		}
	}
	if total == 0 {
		return fmt.Errorf("%s: its ledger is empty", r.Job)
	}
	return nil
}

// JobOf returns the job of a process of this machine, if it is a worker; empty = it is none, like
// the guard of an agent, which is a child of the agent too.
func JobOf(pid int) ident.JobID {
	environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // an ended process has none
	for variable := range strings.SplitSeq(string(environ), "\x00") {
		if job, found := strings.CutPrefix(variable, "REGROUP_JOB="); found {
			return ident.JobID(job)
		}
	}
	return ""
}

// KillWorker kills one of the workers of a job on this machine, another one for another n, once so
// many run. It returns the generation that it was in.
func (c *Cluster) KillWorker(ctx context.Context, job ident.JobID, world, n int) (ident.Generation, error) {
	var pids []int
	v, err := c.JobIs(ctx, job, "all its workers run", func(v events.JobView) bool {
		pids = nil
		for _, w := range v.Workers {
			if !w.State.Ended() && JobOf(w.PID) == job {
				pids = append(pids, w.PID)
			}
		}
		return len(pids) == world
	})
	if err != nil {
		return 0, err
	}
	slices.Sort(pids)
	return v.Generation, syscall.Kill(pids[n%world], syscall.SIGKILL)
}
