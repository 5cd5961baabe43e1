package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/record"
	"github.com/regroup-io/regroup/e2e/report"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// rollout replaces the processes of a deployment.
type rollout struct {
	*deployment
	before, after build
	servicesOnly  bool

	jobs    []*job
	rows    []*row
	drained []string // how jobs that waited were placed
	began   time.Time
}

// row is one replacement, and the worker that was killed after it.
type row struct {
	process  string
	from, to build
	asked    time.Time // to end
	ended    time.Time
	served   time.Time // its successor serves
	victim   string
	of       *job // that lost a worker
	killed   time.Time
	trained  time.Time // all workers of all jobs make steps again
}

// run submits the jobs and replaces process after process.
func (r *rollout) run(ctx context.Context) error {
	for _, j := range []struct {
		name, program string
		recovery      spec.Recovery
		workers       int
	}{
		{"inprocess", r.before.binary("recorder"), spec.RecoveryInProcess, 3},
		{"restart", r.after.binary("trainer"), spec.RecoveryRestart, 2},
		{"newsdk", r.after.binary("recorder"), spec.RecoveryInProcess, 2},
	} {
		one, err := r.submit(ctx, j.name, j.program, j.recovery, j.workers)
		if err != nil {
			return err
		}
		r.jobs = append(r.jobs, one)
	}
	// The old build has stored incidents too before anything of the new one reads.
	for _, j := range r.jobs {
		if err := r.strike(ctx, j, &row{}); err != nil {
			return err
		}
	}
	for _, j := range r.jobs {
		if err := r.is(ctx, j.id, func(v events.JobView) bool { return len(v.Incidents) > 0 && v.OpenIncident == nil }); err != nil {
			return err
		}
	}
	if err := r.phase(ctx, r.before, r.after, r.serviceReplicas()); err != nil {
		return err
	}
	if !r.servicesOnly {
		others := []string{broker}
		for n := range nodes {
			others = append([]string{node(nodes - 1 - n)}, others...)
		}
		if err := r.phase(ctx, r.before, r.after, others); err != nil {
			return err
		}
	}
	for name, b := range r.runs {
		if err := r.report(ctx, name); err != nil {
			return err
		}
		if _, isService := durables[strings.SplitN(name, "-", 2)[0]]; isService && b.name != r.after.name {
			return fmt.Errorf("%s still runs %s", name, b.version)
		}
	}
	fmt.Fprintf(r.log, "every replica of the services reports %s\n", r.after.version)
	return r.phase(ctx, r.after, r.before, r.serviceReplicas())
}

func (r *rollout) serviceReplicas() (all []string) {
	for _, s := range events.ServiceNames() {
		for n := range replicas {
			all = append(all, replica(s, n))
		}
	}
	return all
}

// phase replaces processes one at a time. The streams are made what the successors expect first, as
// an operator does: a service that finds them otherwise waits.
func (r *rollout) phase(ctx context.Context, from, to build, names []string) error {
	if _, err := output(ctx, ".", to.binary("regroup"), "init", "--server", r.url); err != nil {
		return err
	}
	failed, err := r.fail(ctx)
	if err != nil {
		return err
	}
	mixed := replica(events.ServiceScheduler, 0) // from then on both builds place jobs
	var waiting queue
	if slices.Contains(names, mixed) {
		if waiting, err = r.fill(ctx); err == nil {
			err = r.drain(ctx, waiting, "both schedulers "+from.name)
		}
		if err == nil {
			waiting, err = r.fill(ctx)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range names {
		w := &row{process: name, from: from, to: to}
		if err := r.replace(ctx, w); err != nil {
			return fmt.Errorf("%s, %s to %s: %w", name, from.name, to.name, err)
		}
		if err := r.strike(ctx, r.jobs[len(r.rows)%len(r.jobs)], w); err != nil {
			return fmt.Errorf("after %s went from %s to %s: %w", name, from.name, to.name, err)
		}
		if name == mixed {
			if err := r.drain(ctx, waiting, "one scheduler "+from.name+", one "+to.name); err != nil {
				return err
			}
		}
		r.rows = append(r.rows, w)
		fmt.Fprintf(r.log, "%6.1fs %-13s %s -> %s: ended after %.2fs, serves after %.2fs; %s killed, all train after %.2fs\n", time.Since(r.began).Seconds(),
			name, from.name, to.name, w.ended.Sub(w.asked).Seconds(), w.served.Sub(w.asked).Seconds(), w.victim, w.trained.Sub(w.killed).Seconds())
	}
	return r.readsFailure(ctx, to, failed)
}

// replace ends a process, starts its successor and waits until that serves and all jobs train.
func (r *rollout) replace(ctx context.Context, w *row) error {
	role, _, _ := strings.Cut(w.process, "-")
	var agent events.Incarnation
	if role == "node" {
		v, err := r.node(ctx, w.process)
		if err != nil {
			return err
		}
		agent = v.Incarnation
	}
	connected, err := r.connections(ctx, role)
	if err != nil {
		return err
	}
	w.asked = time.Now()
	if err := r.stop(ctx, w.process); err != nil {
		return err
	}
	w.ended = time.Now()
	if err := r.start(w.process, w.to); err != nil {
		return err
	}
	switch role {
	case "node":
		err = r.ready(ctx, w.process, agent)
	case broker:
		err = r.reconnected(ctx)
	default:
		err = r.serves(ctx, w.process, connected)
	}
	if err != nil {
		return err
	}
	w.served = time.Now()
	return r.train(ctx)
}

// reconnected waits until all replicas and agents are connected to a broker that was started again.
func (d *deployment) reconnected(ctx context.Context) error {
	for _, s := range append([]string{"agent"}, events.ServiceNames()...) {
		want := replicas
		if s == "agent" {
			want = nodes
		}
		if err := d.until(ctx, func(ctx context.Context) error {
			found, err := d.connections(ctx, s)
			if err == nil && len(found) < want {
				err = fmt.Errorf("%d connections of %s, want %d: %s", len(found), s, want, d.processes.Log(broker, 2000))
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// train waits until all workers of all jobs make steps.
func (r *rollout) train(ctx context.Context) error {
	for _, j := range r.jobs {
		if _, err := j.trains(ctx, 0); err != nil {
			return err
		}
	}
	return nil
}

// strike kills a worker of a job and waits until all jobs train, that one in a later generation.
func (r *rollout) strike(ctx context.Context, j *job, w *row) error {
	g, who, err := j.kill(ctx)
	if err != nil {
		return err
	}
	w.of, w.victim, w.killed = j, who, time.Now()
	if _, err := j.trains(ctx, g); err != nil {
		return err
	}
	w.trained = time.Now()
	return r.train(ctx)
}

// prove ends the jobs, checks them, and prints what has happened.
func (r *rollout) prove(ctx context.Context, out io.Writer) error {
	for _, j := range r.jobs {
		if err := j.finish(); err != nil {
			return err
		}
	}
	var wrong error
	steps, texts := map[*job][]time.Time{}, map[*job]string{}
	for _, j := range r.jobs {
		h, a, err := j.prove(ctx, r.before, r.after)
		if wrong = errors.Join(wrong, err); h == nil {
			return wrong
		}
		steps[j] = h.Steps()
		texts[j] = fmt.Sprintf("%d steps in %d generations, %d epochs, missing %d, repeated %d; %d steps made in vain and again; %d workers found their state right",
			a.Steps, a.Generations, a.Epochs, a.Missing, a.Repeated, a.Void, a.Finished)
	}
	fmt.Fprint(out, r.markdown(steps, texts))
	for _, line := range r.trouble() {
		wrong = errors.Join(wrong, errors.New(line))
	}
	return wrong
}

// markdown is what has happened, as a section of a document.
func (r *rollout) markdown(steps map[*job][]time.Time, texts map[*job]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. From %s to %s and the services back, in %s.\n\n", report.Machine(), r.before.version, r.after.version, time.Since(r.began).Round(time.Second))
	for _, j := range r.jobs {
		fmt.Fprintf(&b, "- %s, %d workers: %s\n", j.name, j.workers, texts[j])
	}
	for _, text := range r.drained {
		fmt.Fprintf(&b, "- %s\n", text)
	}
	b.WriteString("\n| replaced | to | ended after | serves after |")
	for _, j := range r.jobs {
		fmt.Fprintf(&b, " %s: steps meanwhile, longest without |", j.name)
	}
	b.WriteString(" then killed | without a step | all train after |\n|---|---|---|---|" + strings.Repeat("---|", len(r.jobs)) + "---|---|---|\n")
	for _, w := range r.rows {
		fmt.Fprintf(&b, "| %s | %s | %.2f s | %.2f s |", w.process, w.to.name, w.ended.Sub(w.asked).Seconds(), w.served.Sub(w.asked).Seconds())
		for _, j := range r.jobs {
			fmt.Fprintf(&b, " %d, %d ms |", made(steps[j], w.asked, w.served), record.Longest(steps[j], w.asked, w.served).Length().Milliseconds())
		}
		fmt.Fprintf(&b, " %s | %d ms | %.2f s |\n", w.victim, record.Longest(steps[w.of], w.killed, w.trained).Length().Milliseconds(), w.trained.Sub(w.killed).Seconds())
	}
	return b.String()
}
