package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/record"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// Run is a job of recorders, whose ledger can be verified independently.
type Run struct {
	Job events.JobID
	Dir string // of the records
	Training

	datacenter *Datacenter
}

// Training configures a job of recorders.
type Training struct {
	Name                        string
	Workers                     spec.Workers
	Samples, Batch, CommitEvery int
	StepTime                    time.Duration
}

// Train submits a job of recorders. Its failure budget is unlimited, because faults are intended.
func (c *Datacenter) Train(ctx context.Context, t Training) (*Run, error) {
	dir, err := os.MkdirTemp(c.options.Dir, "records-"+t.Name+"-")
	if err != nil {
		return nil, err
	}
	unlimited := 10_000 // the maximum
	id, err := c.Client.Submit(ctx, spec.Job{
		Name: t.Name, Workers: t.Workers, Recovery: spec.RecoveryInProcess, Failures: spec.Failures{Max: &unlimited},
		Command: []string{
			filepath.Join(c.options.Bin, "recorder"), "-dir", dir, "-samples", fmt.Sprint(t.Samples),
			"-batch", fmt.Sprint(t.Batch), "-commit-every", fmt.Sprint(t.CommitEvery), "-step-time", t.StepTime.String(),
		},
	})
	return &Run{Job: id, Dir: dir, Training: t, datacenter: c}, err
}

// Until waits for a condition of the registry's view.
func (r *Run) Until(ctx context.Context, what string, ok func(events.JobView) bool) (events.JobView, error) {
	var v events.JobView
	err := cluster.Until(ctx, func() (bool, error) {
		got, err := r.datacenter.Client.Job(ctx, r.Job)
		if err == nil {
			v = got
		}
		return err == nil && ok(v), errors.Join(err, fmt.Errorf("%s: waiting until %s; it is %s (%s), generation %s", r.Job, what, v.State, v.Reason, v.Generation))
	})
	return v, err
}

// Trains waits until a generation above one makes steps with so many workers.
func (r *Run) Trains(ctx context.Context, above events.Generation, world int) (events.GenerationView, error) {
	var g events.GenerationView
	_, err := r.Until(ctx, fmt.Sprintf("%d workers train in a generation above %s", world, above), func(v events.JobView) bool {
		if len(v.Generations) == 0 || v.State.Terminal() {
			return false
		}
		g = v.Generations[len(v.Generations)-1]
		return g.Ready && g.Generation > above && g.World == world
	})
	return g, err
}

// Finish makes the workers do their last step.
func (r *Run) Finish() error { return os.WriteFile(filepath.Join(r.Dir, "finish"), nil, 0o600) }

// Ends waits for the end of the job and verifies it: the job has succeeded, and neither the ledger
// nor the records have a missing or repeated sample.
func (r *Run) Ends(ctx context.Context) (*record.History, record.Account, error) {
	v, err := r.Until(ctx, "it ends", func(v events.JobView) bool { return v.State.Terminal() })
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
func (r *Run) ledger(l events.Ledger) error {
	var want, total uint64
	for i := range uint64(r.Samples) {
		want += events.SampleHash(i)
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
