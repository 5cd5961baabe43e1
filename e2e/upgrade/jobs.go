package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/ledger"
	"github.com/regroup-io/regroup/e2e/writers"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// job is a job that trains while the cluster is upgraded.
type job interface {
	// strike kills a worker, another one for another n, and waits for the next generation.
	strike(ctx context.Context, n int) error
	// trains waits until all workers make steps.
	trains(ctx context.Context) error
	// prove ends the job, checks it and says what it has done.
	prove(ctx context.Context) (string, error)
}

// submit submits the jobs, and has each lose a worker: the old build has stored incidents before
// anything of the new one reads.
func (r *rollout) submit(ctx context.Context) error {
	for _, t := range []cluster.Training{
		{Name: "old-sdk", Program: filepath.Join(r.before, "recorder"), Workers: spec.Workers{Min: 2, Max: 3}},
		{Name: "new-sdk", Program: filepath.Join(r.after, "recorder"), Workers: spec.Workers{Min: 1, Max: 2}},
	} {
		t.StepTime = 20 * time.Millisecond
		one, err := r.Train(ctx, t)
		if err != nil {
			return err
		}
		r.jobs = append(r.jobs, &training{one, r})
	}
	g := &group{rollout: r, file: filepath.Join(r.Processes.Dir, "writers")}
	var err error
	g.id, err = r.Client.Submit(ctx, spec.Job{
		Name: "writers", Workers: spec.Workers{Min: ranks, Max: ranks}, Recovery: spec.RecoveryRestart, Failures: spec.Failures{Max: &cluster.Unlimited, SameStep: 1000},
		Command: []string{"/usr/bin/python3", "-c", writers.Program, g.file},
	})
	r.jobs = append(r.jobs, g)
	for range r.jobs {
		if err == nil {
			err = r.strike(ctx)
		}
	}
	return err
}

// training is a job that recovers in its processes, and counts its samples.
type training struct {
	*cluster.Run
	r *rollout
}

func (t *training) strike(ctx context.Context, n int) error {
	g, err := t.r.KillWorker(ctx, t.Job, t.Workers.Max, n)
	if err == nil {
		_, err = t.Trains(ctx, g, t.Workers.Max)
	}
	return err
}

func (t *training) trains(ctx context.Context) error { return t.Makes(ctx, 20*t.Workers.Max) }

// prove also checks the ledger that the command lines of both builds print.
func (t *training) prove(ctx context.Context) (string, error) {
	if err := t.Finish(); err != nil {
		return "", err
	}
	_, a, wrong := t.Ends(ctx)
	for _, b := range []string{t.r.before, t.r.after} {
		printed, err := t.r.command(ctx, b, "status", string(t.Job), "-o", "json")
		if err != nil {
			return "", errors.Join(wrong, err)
		}
		l, err := ledger.Read(strings.NewReader(printed))
		if err != nil {
			return "", errors.Join(wrong, err)
		}
		seed := uint64(1) // of e2e/recorder
		got, err := l.Check(&seed)
		if err == nil && (got.Missing+got.Repeated > 0 || got.Epochs != int(a.Epochs) || got.Samples != a.Steps*uint64(t.Batch)) {
			err = fmt.Errorf("the %s command line prints a ledger of %+v; the records have %+v", filepath.Base(b), got, a)
		}
		wrong = errors.Join(wrong, err)
	}
	return fmt.Sprintf("%s, %d workers: %d steps in %d generations, %d epochs, samples missing %d, repeated %d; %d steps made in vain and again; %d workers found their state right",
		t.Name, t.Workers.Max, a.Steps, a.Generations, a.Epochs, a.Missing, a.Repeated, a.Void, a.Finished), wrong
}

// group is a job that is restarted as a group, whose workers write who of them lives.
type group struct {
	*rollout
	id         events.JobID
	file       string
	generation int // that has been struck
}

const ranks = 2

func (g *group) strike(ctx context.Context, n int) error {
	was, err := g.KillWorker(ctx, g.id, ranks, n)
	g.generation = int(was)
	return errors.Join(err, g.trains(ctx))
}

func (g *group) trains(ctx context.Context) error {
	all, err := writers.Read(g.file)
	if err != nil {
		return err
	}
	before := len(all)
	return cluster.Until(ctx, func() (bool, error) {
		all, err := writers.Read(g.file)
		if err != nil || len(all) < before+20*ranks {
			return false, errors.Join(err, fmt.Errorf("%s writes nothing", g.id))
		}
		newest := all[len(all)-1].Generation
		return newest > g.generation && writers.Ranks(all, newest) == ranks, fmt.Errorf("%s writes in generation %d", g.id, newest)
	})
}

func (g *group) prove(ctx context.Context) (string, error) {
	if err := writers.End(g.file); err != nil {
		return "", err
	}
	v, err := g.JobIs(ctx, g.id, "it ends", func(v events.JobView) bool { return v.State.Terminal() })
	if err != nil || v.State != events.JobStateSucceeded {
		return "", errors.Join(err, fmt.Errorf("%s: %s (%s)", g.id, v.State, v.Reason))
	}
	all, err := writers.Read(g.file)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("writers, %d workers: %d entries in generations to %s", ranks, len(all), v.Generation), writers.Alone(all)
}
