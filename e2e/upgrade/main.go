// Command upgrade is the mixed-version test: a running cluster is upgraded one process at a time,
// and taken back. It builds an old commit and this tree, starts a cluster of the old build, and
// replaces every process of it by one of this tree while jobs train; then it takes the services
// back to the old build, which so has to read what the new one has stored. In each mixed state a
// worker is killed. In the end every job must have succeeded: with each sample trained on once by
// the records of its workers, or with one writer of each rank at a time.
//
//	go run ./e2e/upgrade -from HEAD^
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/ledger"
	"github.com/regroup-io/regroup/e2e/program"
	"github.com/regroup-io/regroup/e2e/writers"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
)

// limit bounds the whole run, and patience what follows one replacement.
const (
	limit    = 30 * time.Minute
	patience = 5 * time.Minute
)

func main() {
	from := flag.String("from", "", "commit of the old build")
	program.Main("upgrade", func(ctx context.Context) error { return run(ctx, *from) })
}

func run(ctx context.Context, from string) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %v", limit))
	defer cancel()
	dir, err := os.MkdirTemp("", "regroup-upgrade-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	before, after, err := builds(ctx, from, dir)
	if err != nil {
		return err
	}
	r := &rollout{before: before, after: after}
	r.Cluster, err = cluster.Start(ctx, cluster.Options{Bin: before, Name: "upgrade", Replicas: 2, Nodes: 3, Slots: 4, Level: "info"})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			fmt.Fprintln(os.Stderr, r.Processes.Logs(6000))
		}
		err = errors.Join(err, r.Close())
	}()
	if err := r.submit(ctx); err != nil {
		return err
	}
	for _, phase := range []struct {
		to    string
		names []string
	}{{after, r.Services()}, {after, slices.Concat(r.Nodes, r.Brokers)}, {before, r.Services()}} {
		if err := r.phase(ctx, phase.to, phase.names); err != nil {
			return err
		}
	}
	return r.prove(ctx)
}

// builds makes the binaries of a commit and of this tree below dir, and returns their folders.
func builds(ctx context.Context, commit, dir string) (before, after string, err error) {
	output := func(in, name string, args ...string) string {
		if err != nil {
			return ""
		}
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir, cmd.Env = in, append(os.Environ(), "CGO_ENABLED=0")
		var text string
		text, err = cluster.Output(cmd)
		return text
	}
	root := output(".", "git", "rev-parse", "--show-toplevel")
	hash := output(root, "git", "rev-parse", "--verify", "--quiet", commit+"^{commit}")
	if err != nil {
		return "", "", fmt.Errorf("commit %q is not in this clone: git fetch --unshallow brings it, or name another one (make e2e SUITE=upgrade FROM=COMMIT): %w", commit, err)
	}
	source, packed := filepath.Join(dir, "source"), filepath.Join(dir, "source.tar")
	before, after = filepath.Join(dir, "old"), filepath.Join(dir, "new")
	output(root, "mkdir", source)
	output(root, "git", "archive", "--format=tar", "--output="+packed, hash)
	output(source, "tar", "-xf", packed)
	for _, b := range []struct{ tree, into string }{{source, before}, {root, after}} {
		output(b.tree, "go", "build", "-o", b.into+"/", "./cmd/regroup", "./e2e/recorder")
	}
	return before, after, err
}

// rollout replaces the processes of a cluster.
type rollout struct {
	*cluster.Cluster
	before, after string // folders of the binaries
	jobs          []job
	strikes       int
}

// phase replaces processes one at a time by those of a build. The streams are made what they expect
// first, as an operator does: a service that finds them otherwise waits.
func (r *rollout) phase(ctx context.Context, to string, names []string) error {
	if _, err := r.command(ctx, to, "init"); err != nil {
		return err
	}
	for _, name := range names {
		if err := r.step(ctx, name, to); err != nil {
			return fmt.Errorf("%s, to the %s build: %w: %s", name, filepath.Base(to), err, r.Processes.Log(name, 2000))
		}
	}
	return nil
}

// step replaces one process, and kills a worker. A new scheduler also places jobs.
func (r *rollout) step(ctx context.Context, name, to string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("waited for %v", patience))
	defer cancel()
	began := time.Now()
	if err := r.replace(ctx, name, to); err != nil {
		return err
	}
	served := time.Since(began)
	if err := r.strike(ctx); err != nil {
		return err
	}
	fmt.Printf("%s went to the %s build: serves after %.2fs; a worker was killed, all train after %.2fs\n", name, filepath.Base(to), served.Seconds(), time.Since(began).Seconds())
	if strings.HasPrefix(name, events.ServiceScheduler) {
		return r.place(ctx)
	}
	return nil
}

// replace ends a process, starts its successor on the same state, and waits until that serves and
// all jobs train.
func (r *rollout) replace(ctx context.Context, name, to string) error {
	was, err := r.node(ctx, name)
	if err != nil {
		return err
	}
	if err := r.Processes.End(ctx, name, syscall.SIGTERM); err != nil {
		return err
	}
	said := len(r.Processes.Log(name, 0))
	if err := r.Processes.Replace(name, filepath.Join(to, "regroup")); err != nil {
		return err
	}
	if err := cluster.Until(ctx, func() (bool, error) {
		is, err := r.node(ctx, name)
		switch {
		case err != nil || !r.Processes.Running(name):
			return false, errors.Join(err, errors.New("it does not run"))
		case slices.Contains(r.Nodes, name):
			return is.State == events.NodeStateReady && is.Incarnation != was.Incarnation, fmt.Errorf("the node is %s (%s)", is.State, is.Reason)
		case slices.Contains(r.Brokers, name):
			return true, nil // the others are there again when the jobs survive
		}
		return strings.Contains(string(r.Processes.Log(name, 0)[said:]), "msg=serving"), errors.New("it does not serve")
	}); err != nil {
		return err
	}
	return r.train(ctx)
}

// node returns discovery's view of the node of an agent; the zero value for other processes.
func (r *rollout) node(ctx context.Context, name string) (events.NodeView, error) {
	if !slices.Contains(r.Nodes, name) {
		return events.NodeView{}, nil
	}
	return cluster.View[events.NodeView](ctx, r.Client, events.BucketNodes, name)
}

// strike kills a worker of one job, of the next one at each call, and waits until all train.
func (r *rollout) strike(ctx context.Context) error {
	n := r.strikes
	r.strikes++
	if err := r.jobs[n%len(r.jobs)].strike(ctx, n); err != nil {
		return err
	}
	return r.train(ctx)
}

func (r *rollout) train(ctx context.Context) error {
	for _, j := range r.jobs {
		if err := j.trains(ctx); err != nil {
			return err
		}
	}
	return nil
}

// place has the schedulers place a small job of the command line of each build, and checks that
// both say the same of one that has failed.
func (r *rollout) place(ctx context.Context) error {
	for _, b := range []string{r.before, r.after} {
		for _, program := range []string{"exit 0", "echo 'panic: the weights are lost' >&2; exit 2"} {
			id, err := r.command(ctx, b, "submit", "--name", "small", "--max-restarts", "0", "--", "sh", "-c", program)
			if err != nil {
				return err
			}
			v, err := r.JobIs(ctx, ident.JobID(id), "it ends", func(v events.JobView) bool { return v.State.Terminal() })
			if err != nil {
				return err
			}
			if failed := v.State == events.JobStateFailed; failed == (program == "exit 0") {
				return fmt.Errorf("%s: %s (%s), of the program %q", id, v.State, v.Reason, program)
			}
			for _, reader := range []string{r.before, r.after} {
				said, err := r.command(ctx, reader, "status", id, "-o", "json")
				if err == nil && (!strings.Contains(said, fmt.Sprintf("%q", v.State)) || v.State == events.JobStateFailed && !strings.Contains(said, "the weights are lost")) {
					err = fmt.Errorf("the command line of the %s build says of %s: %s", filepath.Base(reader), id, said)
				}
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// command runs the command line of a build to its end, and returns what it prints.
func (r *rollout) command(ctx context.Context, build string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(build, "regroup"), args...)
	cmd.Env = append(os.Environ(), "REGROUP_SERVER="+r.URL)
	return cluster.Output(cmd)
}

// prove ends the jobs, checks them, and prints what has happened.
func (r *rollout) prove(ctx context.Context) (wrong error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("waited for %v", patience))
	defer cancel()
	for _, j := range r.jobs {
		said, err := j.prove(ctx)
		fmt.Println(said)
		wrong = errors.Join(wrong, err)
	}
	for line := range strings.Lines(r.Processes.Logs(0)) {
		for _, sign := range []string{"panic:", "code=newer", "code=invalid", "code=internal"} { // it could not understand another
			if strings.Contains(line, sign) {
				wrong = errors.Join(wrong, errors.New(strings.TrimSpace(line)))
			}
		}
	}
	return wrong
}

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
	id         ident.JobID
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
