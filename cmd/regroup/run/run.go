// Package run implements the commands that start a job: `regroup run` submits one, follows it and
// exits with its outcome, and without a server starts one; `regroup submit` returns at once;
// `regroup demo` shows a real job with real faults.
package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/agent/gpus"
	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/jobflags"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/cmd/regroup/serve"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/internal/exitcode"
	"github.com/regroup-io/regroup/internal/workerprotocol"
	"github.com/regroup-io/regroup/services/cluster"
	"github.com/regroup-io/regroup/services/cluster/view"
	"github.com/regroup-io/regroup/services/discovery"
)

type call struct {
	env     command.Env
	within  time.Duration // timeout of the connection and of replies
	config  *boot.Config
	agent   serve.AgentConfig
	hosts   serve.DiscoveryConfig
	flags   *jobflags.Flags
	listed  bool // a host list was given by flags, not in the environment
	json    bool
	from    string // whose exit code is that of the command, if the job fails: worker; empty = its own
	ended   map[ident.Incarnation]events.WorkerExited
	web     serve.GatewayConfig
	pages   bool // serve the dashboard too
	noQueue *bool
	palette screen.Palette
	colours screen.Palette // of the workers' output
}

// Command is `regroup run`.
func Command(env command.Env, c *boot.Config, a serve.AgentConfig, d serve.DiscoveryConfig, w serve.GatewayConfig) *cobra.Command {
	var file string
	var form *command.Format
	r := &call{env: env, config: c, agent: a, hosts: d, web: w, ended: map[ident.Incarnation]events.WorkerExited{}}
	cmd := &cobra.Command{
		Use: "run [flags] -- COMMAND [ARG...]", Short: "Submit a job, follow it, and exit with its outcome", Args: cobra.ArbitraryArgs,
		Long: `Submits a job and follows it to its end. With no server configured and none running here, run brings its own: broker,
services and an agent in this process, beside those of other runs. The first word that is not a flag begins the command. Flags of torchrun and horovodrun are understood: docs/launchers.md.`,
		Example: command.Examples("regroup run --workers 2:4 -- python train.py", "regroup run --workers 4 --recovery in-process -- ./mnist -epochs 4", "regroup run -f job.yaml -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.from != "" && r.from != "worker" {
				return errcode.Errorf(errcode.Invalid, "--exit-code-from %q: write worker, or leave it out", r.from)
			}
			spec, err := readSpec(env, file, r.flags, args)
			if err != nil {
				return explainRefusal(env, form, err)
			}
			if f := cmd.Flags(); f.Changed("verbose") || f.Changed("log-level") {
				spec.Env = withLevel(spec.Env, c.Level())
			}
			for _, name := range []string{"hosts", "host-file", "host-discovery-script", "slots-per-host"} {
				r.listed = r.listed || cmd.Flags().Changed(name)
			}
			r.json = form.Is(command.JSON)
			r.palette, r.colours = env.Palette(cmd, env.ErrIsTerminal), env.Palette(cmd, r.outIsTerminal())
			if r.within, err = command.Timeout(cmd); err != nil {
				return err
			}
			defer boot.WritesFail()()
			for _, n := range slices.Concat(r.flags.Launch().Notes, spec.Warnings()) {
				env.Say(n)
			}
			return r.run(cmd.Context(), spec)
		},
	}
	command.Group(cmd.Flags(), "Job flags", func() { r.flags = jobflags.Add(cmd.Flags()) })
	form = command.Output(cmd, command.Text, command.JSON) // json: one object at the end on stdout, workers' output on stderr
	cmd.Flags().StringVar(&r.from, "exit-code-from", "", "worker: exit with the code of the worker that failed first, 128 and the signal's number for a signal, where the job fails")
	r.noQueue = noQueueFlag(cmd)
	cmd.Flags().StringVarP(&file, "file", "f", "", "job spec in YAML or JSON; - is stdin")
	cmd.Flags().IntVar(&r.agent.Slots, "slots", a.Slots, "with a server of its own: workers that fit here; default: as many as the job wants, or with --gpu one per GPU")
	cmd.Flags().BoolVar(&r.pages, "dashboard", false, "with a server of its own: serve the dashboard too, at a free port, and print a link to it; in a terminal it stays after the end, until Ctrl-C")
	command.Group(cmd.Flags(), "Host flags, with a server of its own", func() { r.hosts.HostFlags(cmd.Flags()) })
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// withLevel sets the workers' log level to this command's, unless the job sets it.
func withLevel(env map[string]string, level string) map[string]string {
	all := map[string]string{workerprotocol.EnvLogLevel: level}
	maps.Copy(all, env)
	return all
}

func (r *call) run(ctx context.Context, spec spec.Job) error {
	launch := r.flags.Launch()
	if launch.Standalone || (r.config.Server == "" && !serve.Shared(*r.config)) {
		if err := launch.Here(); err != nil {
			return err
		}
		r.hosts.Hosts = jobflags.Localhost(r.hosts.Hosts, ident.NodeID(r.agent.Filled().Node))
		if err := r.hosts.Check(ctx); err != nil {
			return err
		}
		l, err := serve.OpenOwn(ctx, *r.config)
		if err != nil {
			return err
		}
		return r.local(ctx, l, spec)
	}
	if r.pages {
		return errcode.Errorf(errcode.Invalid, "--dashboard is that of the server that is used: regroup dashboard prints a link to it, regroup serve gateway starts one")
	}
	if r.listed {
		return errcode.Errorf(errcode.Invalid, "the hosts are those of the server that is used: give its discovery the list (regroup serve discovery --hosts, regroup up --hosts)")
	}
	if err := launch.Remote(); err != nil {
		return err
	}
	return r.attached(ctx, spec)
}

// restWithin is how long the last output of workers may take to be stored by agents that run on.
const restWithin = 400 * time.Millisecond

// attached runs the job on an existing server. Ctrl-C leaves it running.
func (r *call) attached(ctx context.Context, spec spec.Job) error {
	own := *r.config
	own.Wait = r.within
	server, err := serve.AttachShared(ctx, own, r.env.Say)
	if err != nil {
		return err
	}
	defer server.Close()
	ctx, stop := boot.Interruptible(ctx, nil)
	defer stop()
	c := r.env.ClientOf(r.env.Source, r.within, server)
	if *r.noQueue {
		if err := mustStart(ctx, c, spec); err != nil {
			return err
		}
	}
	job, err := submit(ctx, c, *r.config, spec, r.env.Say)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.env.Err, "%s submitted; Ctrl-C leaves it running\n", job)
	w := r.watcher(c, job)
	v, err := w.Run(ctx)
	if code := leftBy(err); code != exitcode.OK {
		fmt.Fprintf(r.env.Err, "\nleft running: regroup logs %s -f   stop it with: regroup stop %s\n", job, job)
		return &exitcode.Error{Code: code}
	}
	if err != nil {
		return err
	}
	if err := w.Rest(ctx, restWithin); err != nil {
		return err
	}
	return r.report(v)
}

// local runs the job on l, with an agent in this process. The first Ctrl-C stops the job, the
// second kills it.
func (r *call) local(parent context.Context, l *serve.Local, spec spec.Job) error {
	defer l.Close()
	l.Discovery = r.hosts
	l.Discovery.Quarantine = discovery.NoQuarantine() // there is no other node
	a := r.agent
	if spec.GPU != nil { // a slot for each of this machine
		a.GPUs = cmp.Or(a.GPUs, gpus.Auto)
	} else {
		a.Slots = cmp.Or(a.Slots, spec.Workers.Max)
	}
	a.Advertise, a.DepartWithin = "127.0.0.1", 0
	if a.Node == "" && l.Number > 1 && !r.listed { // its name appears next to those of other runs
		a.Node = fmt.Sprintf("%s-%d", a.Filled().Node, l.Number)
	}
	a = a.Filled()
	if min := spec.Workers.Min; spec.GPU == nil && a.Slots < min {
		return &exitcode.Error{Code: exitcode.NoRoom, Err: fmt.Errorf("%s: %s wanted at least, and --slots %d gives no more room: nothing else can join a run with a server of its own", spec.Name, english.Plural(min, "worker"), a.Slots)}
	}
	agent, err := serve.NewAgent(l.Process, a)
	if err != nil {
		return err
	}
	c := r.env.ClientOf(cluster.RunSource, r.within, cluster.Server{Ports: l.Process.Ports})
	var pages *serve.Gateway
	if r.pages {
		if pages, err = serve.OpenGateway(r.web.AnyPort(), l.Process); err != nil {
			return err
		}
		fmt.Fprintf(r.env.Err, "dashboard: %s\n", pages.Link())
	}
	runCtx, end := context.WithCancel(parent)
	defer end()
	g, runCtx := errgroup.WithContext(runCtx)
	g.Go(func() error {
		return serve.Beside(runCtx, pages, func(ctx context.Context) error { return serve.Everything(ctx, l, agent) })
	})

	var v events.JobView
	var w *Watcher
	unread := false
	stayed, outcome := false, error(nil) // of a run whose dashboard stayed after its end
	g.Go(func() error {
		defer end()
		if err := stopLeftovers(runCtx, c); err != nil {
			return err
		}
		if err := c.AwaitNodes(runCtx, agent.Incarnation(), a.Node); err != nil { // otherwise the job would first be reported as unplaceable
			return err
		}
		job, err := c.Submit(runCtx, spec)
		if err != nil {
			return err
		}
		why := "no server configured"
		if r.flags.Launch().Standalone {
			why = "--standalone"
		}
		fmt.Fprintf(r.env.Err, "%s  %s: running one here (data: %s), stop with Ctrl-C\n", job, why, l.Process.Config.StateDir)
		w = r.watcher(c, job)
		stopping, restore := boot.Interruptible(runCtx, func() {
			_ = c.ChangeJob(runCtx, cluster.Stop(job, "interrupted twice", true))
			agent.Kill()
		})
		defer restore()
		noStop := context.AfterFunc(stopping, func() {
			if runCtx.Err() == nil {
				fmt.Fprintf(w.Errors(), "stopping %s; Ctrl-C again kills it\n", job)
				_ = c.ChangeJob(runCtx, cluster.Stop(job, "interrupted", false))
			}
		})
		defer noStop()
		v, err = w.Run(runCtx)
		if unread = errors.Is(err, syscall.EPIPE); unread {
			fmt.Fprintf(r.env.Err, "stopping %s: nobody reads its output any more\n", job)
			err = c.StopAndWait(runCtx, job, "nobody read its output any more", false)
		}
		if err != nil {
			return err
		}
		if v, err = c.AwaitExits(runCtx, v); err != nil || pages == nil || !r.env.ErrIsTerminal || r.json || !noStop() {
			return err
		}
		stayed = true
		if err := w.Rest(runCtx, restWithin); err != nil {
			return err
		}
		outcome = r.report(v)
		fmt.Fprintf(r.env.Err, "the dashboard stays until Ctrl-C: %s\n", pages.Link())
		<-stopping.Done()
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	if stayed {
		return outcome
	}
	if unread {
		return &exitcode.Error{Code: exitcode.Unread}
	}
	// The agent has ended and published its workers' last output; the broker still runs.
	if err := w.Rest(parent, 0); err != nil {
		return err
	}
	return r.report(v)
}

// leftBy is the exit code of a run that only followed its job and ended early: by Ctrl-C, or
// because its output has no reader. 0 = neither.
func leftBy(err error) int {
	switch {
	case errors.Is(err, boot.ErrInterrupted):
		return exitcode.Interrupted
	case errors.Is(err, syscall.EPIPE):
		return exitcode.Unread
	}
	return exitcode.OK
}

func (r *call) watcher(c *cluster.Client, job ident.JobID) *Watcher {
	out := r.env.Out
	if r.json {
		out = r.env.Err
	}
	return NewWatcher(WatchOptions{
		Client: c, Job: job, Out: out, Err: r.env.Err, Palette: r.palette, Terminal: r.env.ErrIsTerminal,
		OutPalette: r.colours, OutTerminal: r.outIsTerminal(),
		OnFact: func(e events.Event) {
			if x, ok := e.Body.(events.WorkerExited); ok && r.from != "" {
				r.ended[x.Incarnation] = x
			}
		},
	})
}

// report is report with the exit code of a worker, if that is wanted and there is one.
func (r *call) report(v events.JobView) error {
	err := report(r.env.Out, r.env.Err, r.palette, v, r.json)
	if v.State != events.JobStateFailed || v.FirstError == nil {
		return err
	}
	x, known := r.ended[v.FirstError.Incarnation]
	switch signal := unix.SignalNum(x.Signal); {
	case known && signal > 0:
		return &exitcode.Error{Code: 128 + int(signal)}
	case known && x.ExitCode > 0:
		return &exitcode.Error{Code: x.ExitCode}
	}
	return err
}

// outIsTerminal reports whether the workers' output goes to a terminal.
func (r *call) outIsTerminal() bool {
	if r.json {
		return r.env.ErrIsTerminal
	}
	return r.env.IsTerminal
}

// stopLeftovers ends the jobs of a killed earlier `run` in this state directory.
func stopLeftovers(ctx context.Context, c *cluster.Client) error {
	return c.StopAll(ctx, "left by a run that was killed", func(v events.JobView) bool { return strings.HasPrefix(v.By, cluster.RunSource) })
}

// report prints the outcome of a job and returns the error with its exit code; nil when it
// succeeded.
func report(out, errs io.Writer, p screen.Palette, v events.JobView, asJSON bool) error {
	now := time.Now()
	s := view.Summarize(v, now)
	if asJSON {
		if err := command.WriteJSON(out, s); err != nil {
			return err
		}
	}
	if err := screen.Final(errs, p, v, now); err != nil {
		return err
	}
	return s.Err()
}
