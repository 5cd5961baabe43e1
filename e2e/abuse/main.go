// Command abuse measures what identities cost that do their worst, with real processes on this
// machine, and writes a report.
//
//	go run ./e2e/abuse -out docs/benchmarks.md
//
// A job of four workers trains on two nodes of a cluster with identities and TLS: for a while
// undisturbed, then beside a viewer, a submitter and an agent that take what they can get, one
// after the other. It prints how far the memory of the broker has grown, and the 99th percentile of
// the time from step to step, and fails if either is above its goal. The agents and workers run on
// other cores than everything else, as on machines of their own, if there are several.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/record"
	"github.com/regroup-io/regroup/e2e/report"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/jetstream"
)

const head = "# Benchmarks\n"

// Goals.
const (
	growth   = 100.0 // MiB
	slowdown = 1.10
)

func main() {
	out := flag.String("out", "", "Markdown file of which a section is written; empty = standard output")
	each := flag.Duration("for", time.Minute, "how long the job trains undisturbed, and beside each of the three")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *out, *each); err != nil {
		fmt.Fprintln(os.Stderr, "abuse:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out string, each time.Duration) (err error) {
	dir, err := os.MkdirTemp("", "regroup-abuse-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l := &lab{dir: dir, processes: cluster.Processes{Dir: dir}}
	defer l.stop()
	if err := l.start(ctx); err != nil {
		for _, name := range l.processes.Names() {
			err = fmt.Errorf("%w\n%s: %s", err, name, l.processes.Log(name, 500))
		}
		return err
	}
	var rows []row
	for _, who := range []access.Identity{{}, {Role: access.RoleViewer, Name: "eve"}, {Role: access.RoleSubmitter, Name: "sue"}, {Role: access.RoleAgent, Name: "mallory", Node: "mallory"}} {
		r, err := l.measure(ctx, who, each)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "abuse: %s: %.0f MiB, p99 %s, %s\n", r.who, r.most, r.p99, r.took)
		rows = append(rows, r)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "Written by `make bench SUITE=abuse`. Measured on %s. A broker with identities and TLS, the services and two agents are processes of their own on this\n", report.Machine())
	fmt.Fprintf(&text, "machine%s; a job of four workers makes steps of 10 ms. One identity after the other does its worst for %s: consumers, subscriptions,\nconnections, large messages and requests, as many as it gets.\n\n", l.apart(), each)
	text.WriteString("| beside the job | broker, MiB | most, MiB | growth, MiB | goal | step p99, ms | of undisturbed | goal | it got |\n|---|---|---|---|---|---|---|---|---|\n")
	var missed []error
	for _, r := range rows {
		grown, slower := r.most-rows[0].before, float64(r.p99)/float64(rows[0].p99)
		fmt.Fprintf(&text, "| %s | %.0f | %.0f | %.0f | %.0f | %.1f | %.2f | %.2f | %s |\n", r.who, r.before, r.most, grown, growth, float64(r.p99)/float64(time.Millisecond), slower, slowdown, r.took)
		if grown > growth {
			missed = append(missed, fmt.Errorf("%s: the broker has grown by %.0f MiB, at most %.0f are wanted", r.who, grown, growth))
		}
		if slower > slowdown {
			missed = append(missed, fmt.Errorf("%s: the 99th percentile of steps is %.2f of the undisturbed one, at most %.2f is wanted", r.who, slower, slowdown))
		}
	}
	if out == "" {
		fmt.Print(text.String())
	} else if err := report.Section(out, head, "Identities that do their worst", text.String()); err != nil {
		return err
	}
	return errors.Join(missed...)
}

// row is what one part of the measurement has shown.
type row struct {
	who          string
	before, most float64 // memory of the broker, MiB
	p99          time.Duration
	took         string // what the identity got
}

// lab is the cluster with its job.
type lab struct {
	dir, url, auth string
	processes      cluster.Processes
	client         *cluster.Client
	theirs, ours   string // cores of agents and workers, and of the rest; empty = all
}

func (l *lab) stop() {
	if l.client != nil {
		l.client.Close()
	}
	l.processes.Stop(10 * time.Second)
}

func (l *lab) apart() string {
	if l.theirs == "" {
		return ""
	}
	return ", the agents and workers on cores " + l.theirs + ", all others on " + l.ours
}

// on returns the arguments that run a program on some cores.
func on(cores string, args ...string) []string {
	if cores == "" {
		return args
	}
	return append([]string{"taskset", "-c", cores}, args...)
}

func (l *lab) start(ctx context.Context) error {
	if n := runtime.NumCPU(); n > 1 {
		if _, err := exec.LookPath("taskset"); err == nil {
			l.theirs, l.ours = fmt.Sprintf("0-%d", n/2-1), fmt.Sprintf("%d-%d", n/2, n-1)
			if out, err := exec.CommandContext(ctx, "taskset", "-a", "-p", "-c", l.ours, strconv.Itoa(os.Getpid())).CombinedOutput(); err != nil {
				return fmt.Errorf("taskset: %w: %s", err, out)
			}
		}
	}
	bin := filepath.Join(l.dir, "bin")
	if err := cluster.Build(bin, false, "cmd/regroup", "e2e/recorder"); err != nil {
		return err
	}
	regroup := filepath.Join(bin, "regroup")
	address, err := cluster.FreeAddress()
	if err != nil {
		return err
	}
	l.url, l.auth = "nats://"+address, filepath.Join(l.dir, "auth")
	for _, args := range [][]string{
		{"init", "--host", "127.0.0.1"},
		{"issue", "agent", "node-a"},
		{"issue", "agent", "node-b"},
		{"issue", "client", "measure"},
		{"issue", "viewer", "eve"},
		{"issue", "submitter", "sue"},
		{"issue", "agent", "mallory"},
	} {
		if out, err := exec.CommandContext(ctx, regroup, append([]string{"auth", "--auth", l.auth}, args...)...).CombinedOutput(); err != nil {
			return fmt.Errorf("regroup auth %s: %w: %s", args[0], err, out)
		}
	}
	all := [][]string{{"nats", "serve", "nats", "--listen", address}}
	for _, name := range events.ServiceNames() {
		all = append(all, []string{name, "serve", name, "--server", l.url})
	}
	for _, node := range []string{"node-a", "node-b"} {
		all = append(all, []string{node, "agent", "--server", l.url, "--node", node, "--slots", "2", "--advertise", "127.0.0.1"})
	}
	for _, a := range all {
		cores := l.ours
		if strings.HasPrefix(a[0], "node-") {
			cores = l.theirs
		}
		args := on(cores, slices.Concat([]string{regroup}, a[1:], []string{"--state-dir", filepath.Join(l.dir, "state-"+a[0]), "--log-level", "warn", "--auth", l.auth})...)
		if err := l.processes.Start(cluster.Command{Name: a[0], Args: args}); err != nil {
			return err
		}
	}
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if l.client, err = cluster.ConnectWith(within, jetstream.ConnectOptions{
		URL: l.url, Name: "measure", Credentials: filepath.Join(l.auth, "users", "measure.creds"), RootCA: filepath.Join(l.auth, "tls", "ca.pem"),
	}); err != nil {
		return err
	}
	records := filepath.Join(l.dir, "records")
	if err := os.Mkdir(records, 0o700); err != nil {
		return err
	}
	job, err := l.client.Submit(within, spec.Job{
		Name: "train", Command: []string{filepath.Join(bin, "recorder"), "-dir", records}, Workers: spec.Workers{Min: 4, Max: 4}, Recovery: spec.RecoveryInProcess,
	})
	if err != nil {
		return err
	}
	return cluster.Until(within, func() (bool, error) {
		v, err := l.client.Job(within, job)
		return err == nil && v.State == events.JobStateRunning && v.Generation > 0, fmt.Errorf("the job is %s: %s: %w", v.State, v.Reason, err)
	})
}

// measure measures the job beside an identity that does its worst; the zero value is nobody.
func (l *lab) measure(ctx context.Context, who access.Identity, each time.Duration) (row, error) {
	r := row{who: "nobody", took: "nothing"}
	pid, _ := l.processes.PID("nats")
	var err error
	if r.before, _, err = cluster.Memory(pid); err != nil {
		return r, err
	}
	r.most = r.before
	began := time.Now()
	limit, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	ended := make(chan string, 1)
	go func() {
		if who.Role == "" {
			<-limit.Done()
			ended <- r.took
			return
		}
		ended <- l.worst(limit, who)
	}()
	if who.Role != "" {
		r.who = string(who.Role)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case r.took = <-ended:
			over = true
		case <-tick.C:
		}
		now, _, err := cluster.Memory(pid)
		if err != nil {
			return r, fmt.Errorf("the broker has ended: %w", err)
		}
		r.most = max(r.most, now)
	}
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	h, err := record.Read(filepath.Join(l.dir, "records"))
	if err != nil {
		return r, err
	}
	var took []time.Duration
	var last time.Time
	for _, at := range h.Steps() {
		if at.After(began) && !last.IsZero() {
			took = append(took, at.Sub(last))
		}
		last = at
	}
	if len(took) < 100 || len(h.Generations) != 1 {
		return r, fmt.Errorf("%s: the job has made %d steps in %s, in %d generations", r.who, len(took), each, len(h.Generations))
	}
	r.p99 = report.Quantile(took, 0.99)
	return r, nil
}
