package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// queued is how many jobs wait at once for slots.
const queued = 6

// queue is jobs that wait until one that does nothing makes room, to be placed by the schedulers of
// both builds.
type queue struct {
	filler  events.JobID
	waiting []events.JobID
}

// fill takes all free slots, and submits jobs that wait for them by the command lines of both
// builds in turn.
func (r *rollout) fill(ctx context.Context) (q queue, err error) {
	free := nodes * slots
	for _, j := range r.jobs {
		free -= j.workers
	}
	q.filler, err = r.client.Submit(ctx, spec.Job{
		Name: "filler", Workers: spec.Workers{Min: free, Max: free}, Recovery: spec.RecoveryRestart, Command: []string{"sleep", "3600"},
	})
	if err != nil {
		return q, err
	}
	if err := r.is(ctx, q.filler, func(v events.JobView) bool { return v.State == events.JobStateRunning }); err != nil {
		return q, err
	}
	for n := range queued {
		b := []build{r.before, r.after}[n%2]
		id, err := output(ctx, ".", b.binary("regroup"), "submit", "--server", r.url, "--name", "queued", "--workers", strconv.Itoa(free), "--", "true")
		if err != nil {
			return q, err
		}
		q.waiting = append(q.waiting, events.JobID(id))
		if err := r.is(ctx, q.waiting[n], func(v events.JobView) bool { return v.State == events.JobStateWaiting && v.Reason != "" }); err != nil {
			return q, err
		}
	}
	return q, nil
}

// drain makes room, waits until all jobs that waited have succeeded, and notes how long that took.
func (r *rollout) drain(ctx context.Context, q queue, schedulers string) error {
	for _, id := range q.waiting {
		if err := r.is(ctx, id, func(v events.JobView) bool { return v.State == events.JobStateWaiting }); err != nil {
			return fmt.Errorf("%s: %w", schedulers, err)
		}
	}
	began := time.Now()
	if err := r.client.Stop(ctx, q.filler); err != nil {
		return err
	}
	order := "in the order of their submits"
	var last time.Time
	for _, id := range q.waiting {
		if err := r.is(ctx, id, func(v events.JobView) bool {
			if v.State != events.JobStateSucceeded {
				return false
			}
			if v.Ended.Before(last) {
				order = "not in the order of their submits"
			}
			last = v.Ended
			return true
		}); err != nil {
			return fmt.Errorf("%s: %w", schedulers, err)
		}
	}
	r.drained = append(r.drained, fmt.Sprintf("%s: %d jobs that waited for the same slots ran within %.1f s of room for the first, %s",
		schedulers, len(q.waiting), time.Since(began).Seconds(), order))
	return nil
}

// crash is what a failing worker prints.
const crash = "panic: the weights are lost"

// fail submits a job that fails, so that what its worker said about its end is stored.
func (r *rollout) fail(ctx context.Context) (events.JobID, error) {
	none := 0
	id, err := r.client.Submit(ctx, spec.Job{
		Name: "fails", Workers: spec.Workers{Min: 1, Max: 1}, Recovery: spec.RecoveryRestart, Failures: spec.Failures{Max: &none},
		Command: []string{"sh", "-c", "echo '" + crash + "' >&2; echo >&2; echo 'goroutine 1 [running]:' >&2; exit 2"},
	})
	if err != nil {
		return id, err
	}
	return id, r.is(ctx, id, func(v events.JobView) bool { return v.State == events.JobStateFailed })
}

// readsFailure checks that a build's command line says of a job that failed while other builds
// served how it did.
func (r *rollout) readsFailure(ctx context.Context, b build, id events.JobID) error {
	said, err := output(ctx, ".", b.binary("regroup"), "status", string(id), "-o", "json", "--server", r.url)
	if err == nil && (!strings.Contains(said, `"failed"`) || !strings.Contains(said, crash)) {
		err = fmt.Errorf("the %s command line says of %s: %s", b.name, id, said)
	}
	return err
}

// is waits until the registry's view of a job is as wanted.
func (r *rollout) is(ctx context.Context, id events.JobID, ok func(events.JobView) bool) error {
	return r.until(ctx, func(ctx context.Context) error {
		v, err := r.client.Job(ctx, id)
		if err == nil && !ok(v) {
			err = fmt.Errorf("%s is %s (%s)", id, v.State, v.Reason)
		}
		return err
	})
}
