package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/e2e/ledger"
	"github.com/regroup-io/regroup/e2e/record"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

const (
	samples = 6000
	batch   = 60
	// stepsAfter is how many steps a job must make to be taken for one that trains.
	stepsAfter = 20
)

// job trains while the cluster is upgraded.
type job struct {
	id      events.JobID
	name    string
	dir     string // of the records
	workers int
	inplace bool // it recovers in the process, and so keeps a ledger
	tail    record.Tail
	killed  int

	d *deployment
}

// submit submits a job whose program writes records, and returns it once it trains.
func (d *deployment) submit(ctx context.Context, name, program string, recovery spec.Recovery, workers int) (*job, error) {
	j := &job{name: name, dir: filepath.Join(d.dir, "records-"+name), workers: workers, inplace: recovery == spec.RecoveryInProcess, d: d}
	j.tail.Dir = j.dir
	if err := os.Mkdir(j.dir, 0o700); err != nil {
		return nil, err
	}
	unlimited := 10_000 // the most that is allowed: workers are killed on purpose
	var err error
	j.id, err = d.client.Submit(ctx, spec.Job{
		Name: name, Workers: spec.Workers{Min: (workers + 1) / 2, Max: workers}, Recovery: recovery,
		Failures: spec.Failures{Max: &unlimited, SameStep: 1000},
		Command: []string{
			program, "-dir", j.dir, "-samples", fmt.Sprint(samples), "-batch", fmt.Sprint(batch), "-commit-every", "10", "-step-time", "30ms",
		},
	})
	if err != nil {
		return nil, err
	}
	_, err = j.trains(ctx, 0)
	return j, err
}

// view reads the registry's view.
func (j *job) view(ctx context.Context) (events.JobView, error) {
	v, err := j.d.client.Job(ctx, j.id)
	if err == nil && v.State.Terminal() && v.State != events.JobStateSucceeded {
		err = fmt.Errorf("%s: %s (%s)", j.id, v.State, v.Reason)
	}
	return v, err
}

// trains waits until all workers of the job make steps in a generation above one, and returns it.
func (j *job) trains(ctx context.Context, above events.Generation) (g events.Generation, err error) {
	err = j.d.until(ctx, func(ctx context.Context) error {
		v, err := j.view(ctx)
		if err != nil {
			return err
		}
		if n := len(v.Generations); n > 0 && v.Generations[n-1].Generation > above && v.Generations[n-1].World == j.workers {
			g = v.Generations[n-1].Generation
			return nil
		}
		return fmt.Errorf("%s: waiting for a generation above %s with %d workers; it is %s (%s), generation %s", j.id, above, j.workers, v.State, v.Reason, v.Generation)
	})
	if err != nil {
		return g, err
	}
	if _, err := j.tail.Poll(); err != nil {
		return g, err
	}
	made := 0
	return g, j.d.until(ctx, func(ctx context.Context) error {
		n, err := j.tail.Poll()
		if made += n; err == nil && made < stepsAfter*j.workers {
			v, verr := j.view(ctx)
			err = errors.Join(verr, fmt.Errorf("%s has made %d steps of workers in generation %s, want %d; it is %s (%s)", j.id, made, g, stepsAfter*j.workers, v.State, v.Reason))
		}
		return err
	})
}

// kill kills one worker with SIGKILL, another one at each call, and returns the generation that it
// breaks.
func (j *job) kill(ctx context.Context) (g events.Generation, who string, err error) {
	err = j.d.until(ctx, func(ctx context.Context) error {
		v, err := j.view(ctx)
		if err != nil {
			return err
		}
		alive := slices.DeleteFunc(slices.Clone(v.Workers), func(w events.WorkerView) bool { return w.State.Ended() || !j.runs(w.PID) })
		if len(alive) < j.workers {
			return fmt.Errorf("%s: %d of %d workers run", j.id, len(alive), j.workers)
		}
		w := alive[j.killed%len(alive)]
		g, who = v.Generation, fmt.Sprintf("%s %s", j.name, w.Place)
		return syscall.Kill(w.PID, syscall.SIGKILL)
	})
	j.killed++
	return g, who, err
}

// runs tells whether a process is a worker of this job.
func (j *job) runs(pid int) bool {
	if pid <= 0 {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && bytes.Contains(b, []byte("REGROUP_JOB="+string(j.id)+"\x00"))
}

// finish has the workers make their last step.
func (j *job) finish() error { return os.WriteFile(filepath.Join(j.dir, "finish"), nil, 0o600) }

// prove waits for the end of the job and checks it: succeeded, and every sample of every epoch
// trained on once, by the records of the workers and by the ledger that they committed.
func (j *job) prove(ctx context.Context, clients ...build) (*record.History, record.Account, error) {
	var v events.JobView
	err := j.d.until(ctx, func(ctx context.Context) (err error) {
		if v, err = j.view(ctx); err == nil && !v.State.Terminal() {
			err = fmt.Errorf("%s does not end: %s (%s)", j.id, v.State, v.Reason)
		}
		return err
	})
	if err != nil {
		return nil, record.Account{}, err
	}
	h, err := record.Read(j.dir)
	if err != nil {
		return nil, record.Account{}, err
	}
	a, wrong := h.Check(samples)
	if a.Missing+a.Repeated > 0 || a.Finished == 0 || a.Epochs == 0 {
		wrong = errors.Join(wrong, fmt.Errorf("by its records %d samples missing, %d repeated in %d epochs, %d workers found their state right",
			a.Missing, a.Repeated, a.Epochs, a.Finished))
	}
	if j.inplace {
		for _, b := range clients {
			wrong = errors.Join(wrong, j.ledger(ctx, b, a))
		}
	}
	if wrong != nil {
		wrong = fmt.Errorf("%s: %w", j.id, wrong)
	}
	return h, a, wrong
}

// ledger checks what a command line prints of the job's ledger, and that it counts what the records
// do.
func (j *job) ledger(ctx context.Context, b build, a record.Account) error {
	printed, err := output(ctx, ".", b.binary("regroup"), "status", string(j.id), "-o", "json", "--server", j.d.url)
	if err != nil {
		return err
	}
	l, err := ledger.Read(strings.NewReader(printed))
	if err != nil {
		return err
	}
	seed := uint64(1) // of e2e/recorder
	got, err := l.Check(&seed)
	if err == nil && (got.Missing+got.Repeated > 0 || got.Epochs != int(a.Epochs) || got.Samples != a.Steps*batch) {
		err = fmt.Errorf("the %s command line prints a ledger of %d samples in %d epochs, missing %d, repeated %d; the records have %d steps of %d in %d epochs",
			b.name, got.Samples, got.Epochs, got.Missing, got.Repeated, a.Steps, batch, a.Epochs)
	}
	return err
}

// made counts the steps that were made between two moments, those that were lost later included.
func made(steps []time.Time, from, to time.Time) (n int) {
	for _, at := range steps {
		if !at.Before(from) && at.Before(to) {
			n++
		}
	}
	return n
}
