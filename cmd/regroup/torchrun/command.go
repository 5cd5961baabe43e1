// Package torchrun implements `regroup torchrun`: torchrun's command line, for Regroup's agent.
//
// Every node runs one, with the same arguments. A single node has a server of its own; of several,
// the one that torchrun would have host its store serves the others, unless a server is configured.
// All of them create, or join, the same job, whose nodes come by themselves.
package torchrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/agent"
	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/cmd/regroup/run"
	"github.com/regroup-io/regroup/cmd/regroup/serve"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/internal/errorreport"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/cluster"
)

type call struct {
	env     command.Env
	config  *boot.Config
	agent   serve.AgentConfig
	web     serve.GatewayConfig
	options *options
	palette screen.Palette
	colour  string          // mode of --color
	host    string          // whose name this node has, with a number where that is in use; empty = it was given a name
	ended   *events.JobView // how the job has ended; nil = it has not, for this node
}

// Command is `regroup torchrun`.
func Command(env command.Env, c *boot.Config, a serve.AgentConfig, w serve.GatewayConfig) *cobra.Command {
	t := &call{env: env, config: c, agent: a, web: w}
	cmd := &cobra.Command{
		Use: "torchrun [flags] SCRIPT [ARG...]", Short: "Run a script as torchrun does: the same flags, and PET_ variables", Args: cobra.ArbitraryArgs,
		Long: `Runs a script of torch.distributed with torchrun's command line: put regroup in front. It is started on every node with the
same arguments. What each flag does here is in docs/torchrun.md.`,
		Example: command.Examples("regroup torchrun --nproc-per-node 2 train.py",
			"regroup torchrun --nnodes 1:4 --nproc-per-node 8 --max-restarts 3 \\\n      --rdzv-backend c10d --rdzv-endpoint node1:29400 train.py",
			"regroup torchrun --nproc-per-node 2 --max-restarts 3 --spares 2 \\\n      train.py"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.options.read(os.LookupEnv)
			job, err := t.options.job(args)
			if err != nil {
				return err
			}
			t.palette = env.Palette(cmd, env.ErrIsTerminal)
			t.colour = command.Colour(cmd)
			for _, n := range t.options.notes() {
				env.Say(n)
			}
			err = t.run(cmd.Context(), job)
			return errors.Join(err, reportError(os.Getenv(errorreport.Env), t.ended, err, time.Now()))
		},
	}
	command.Group(cmd.Flags(), "torchrun's flags", func() { t.options = add(cmd.Flags()) })
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func (t *call) run(ctx context.Context, job spec.Job) error {
	at, err := t.options.place(ctx, t.config.Server)
	if err != nil {
		return err
	}
	t.agent.Advertise = cmp.Or(t.options.text("local-addr"), t.agent.Advertise)
	if t.agent.Node == "" {
		t.host = t.agent.Filled().Node
		if t.agent.Node, err = claimName(t.config.StateDir, t.host); err != nil {
			return err
		}
	}
	switch {
	case at.own:
		t.agent.Advertise = cmp.Or(t.agent.Advertise, "127.0.0.1")
		l, err := serve.OpenOwn(ctx, *t.config)
		if err != nil {
			return err
		}
		return t.serve(ctx, l, job)
	case t.options.pages && at.host == "":
		return errcode.Errorf(errcode.Invalid, "--dashboard is that of the server that is used, %s: regroup dashboard prints a link to it, regroup serve gateway starts one", at.url)
	case at.host != "":
		if t.config.Secret == "" {
			t.env.Say(at.host + " admits any client, and a client can run commands here: give all nodes the same REGROUP_SECRET")
		}
		l, err := serve.OpenOwnAt(ctx, *t.config, at.host)
		if errcode.Of(err) == errcode.Conflict { // another process of this machine serves it
			return t.attached(ctx, "nats://"+at.host, job, true)
		}
		if err != nil {
			return err
		}
		return t.serve(ctx, l, job)
	}
	return t.attached(ctx, at.url, job, at.url != t.config.Server)
}

// attached joins a job on a server that another process runs; hosted = for this run alone.
func (t *call) attached(ctx context.Context, url string, job spec.Job, hosted bool) error {
	c := *t.config
	c.Server, c.Wait = url, job.Rendezvous.JoinTimeout.D()
	if hosted { // identities are those of another server
		c.Auth, c.Creds, c.TLSCA, c.TLSCert, c.TLSKey = "", "", "", "", ""
	}
	c, err := c.AsNode(t.agent.Filled().Node)
	if err != nil {
		return err
	}
	p, err := boot.Dial(ctx, c, t.env.Say)
	if err != nil {
		return err
	}
	defer p.Close()
	run := t.options.text("rdzv-id")
	if !hosted {
		return t.join(ctx, p, run, job, nil)
	}
	server := p.Conn.ServerID()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	watched, stop := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error {
		if hostLost(watched, p, server, job.Rendezvous.KeepAliveInterval.D()*time.Duration(job.Rendezvous.KeepAliveMaxAttempt)) {
			end(errcode.Errorf(errcode.Unavailable, "the node that serves this run, at %s, is gone, and with it the job; with brokers on three machines no node is precious: docs/torchrun.md", strings.TrimPrefix(url, "nats://")))
		}
		return nil
	})
	err = t.join(ctx, p, run+"@"+server, job, nil) // ids may be used again, by another run
	stop()
	_ = g.Wait() // it has no error
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, boot.ErrInterrupted) {
		return cause
	}
	return err
}

// hostLost returns true once there was no connection to a server for so long, or another server
// has taken its address; false when ctx ends.
func hostLost(ctx context.Context, p *boot.Process, server string, patience time.Duration) bool {
	last := time.Now()
	return wait.Until(ctx, 200*time.Millisecond, func() (gone bool, err error) {
		if p.Conn.Connected() {
			last = time.Now()
			return p.Conn.ServerID() != server, nil
		}
		return time.Since(last) > patience, nil
	}) == nil
}

// serve runs a server for this node and the others of the run, and joins the job on it.
func (t *call) serve(ctx context.Context, l *serve.Local, job spec.Job) error {
	defer l.Close()
	var pages *serve.Gateway
	if t.options.pages {
		var err error
		if pages, err = serve.OpenGateway(t.web.AnyPort(), l.Process); err != nil {
			return err
		}
		fmt.Fprintf(t.env.Err, "dashboard: %s\n", pages.Link())
	}
	joined := func(ctx context.Context) error {
		c := cluster.New(l.Process.Ports, serve.JoinSource)
		err := c.StopAll(ctx, "left by a run that was killed", func(v events.JobView) bool { return v.Submitted.Before(l.Opened) })
		if err != nil {
			return err
		}
		return t.join(ctx, l.Process, t.options.text("rdzv-id")+"@"+l.Process.Conn.ServerID(), job, l)
	}
	err := l.During(ctx, func(ctx context.Context) error { return serve.Beside(ctx, pages, joined) })
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		return nil
	}
	return err
}

// othersWithin is how long a node that serves the others waits for them at the end, as torchrun's
// exit barrier does.
const othersWithin = 5 * time.Minute

// freeName takes the next name for this node while a living agent has it, which may be one of
// another user, or of regroup up.
func (t *call) freeName(ctx context.Context, c *cluster.Client, stateDir string) error {
	for {
		used, err := serve.NameInUse(ctx, c, stateDir, t.agent.Node)
		switch {
		case err != nil || !used:
			return err
		case t.host == "":
			return errcode.Errorf(errcode.Conflict, "node %s has a living agent: give this one another name (REGROUP_AGENT_NODE)", t.agent.Node)
		}
		if t.agent.Node, err = claimName(t.config.StateDir, t.host); err != nil { // the name that it has is claimed
			return err
		}
	}
}

// join takes part in the job until it has ended. l is the server of this process, or nil.
func (t *call) join(ctx context.Context, p *boot.Process, runID string, job spec.Job, l *serve.Local) (err error) {
	c := cluster.New(p.Ports, serve.JoinSource)
	c.AnswerWithin = p.Config.Wait
	if err := t.freeName(ctx, c, p.Config.StateDir); err != nil {
		return err
	}
	joined, err := serve.CreateJob(ctx, c, "torchrun-"+runID, job)
	if err != nil {
		return err
	}
	a := t.agent.Filled()
	console, err := newConsole(t.options, t.env, t.colour, a.Node, t.options.text("rdzv-id"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, console.close()) }()
	errs := console.bottom.Writer(t.env.Err)
	var made *agent.Agent
	signals, err := t.options.signals()
	if err != nil {
		return err
	}
	stopping, off := boot.InterruptibleBy(ctx, func() {
		if l != nil { // else the job goes on without this node
			_ = c.ChangeJob(ctx, cluster.Stop(joined.Job, "interrupted twice", true))
		}
		if made != nil {
			made.Kill()
		}
	}, signals...)
	defer off()
	member := serve.Membership{
		Process: p, Agent: t.agent, Client: c, Job: joined, Output: console.line, ErrorFile: console.errorFile, Err: errs,
		Made: func(a *agent.Agent) { made = a }, Ended: func(v events.JobView) { t.ended = &v },
	}
	if fd := t.options.companion; fd != 0 {
		member.Changed = newCompanion(fd).changed
	}
	story, ended := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error {
		w := run.NewWatcher(run.WatchOptions{Client: c, Job: joined.Job, Err: errs, Palette: t.palette})
		if _, err := w.Run(story); err != nil && story.Err() == nil {
			return err
		}
		return nil
	})
	in := stopping // a node that is interrupted leaves the job, which goes on
	if l != nil {  // without its server it cannot
		in = ctx
		defer context.AfterFunc(stopping, func() {
			if ctx.Err() == nil {
				fmt.Fprintf(errs, "stopping %s; again kills it\n", joined.Job)
				_ = c.ChangeJob(ctx, cluster.Stop(joined.Job, "interrupted", false))
			}
		})()
	}
	err = member.Run(in)
	ended()
	_ = g.Wait() // an error in the story is no error of the job
	if l != nil {
		t.awaitOthers(ctx, l)
	}
	return err
}

// awaitOthers lets the other nodes of the run learn how it has ended.
func (t *call) awaitOthers(ctx context.Context, l *serve.Local) {
	limit, cancel := context.WithTimeout(ctx, othersWithin)
	defer cancel()
	for l.Others() > 0 {
		if !wait.Sleep(limit, 20*time.Millisecond) {
			fmt.Fprintf(t.env.Err, "after %s there is still a connection of %s, which loses its server now\n", othersWithin, english.Plural(l.Others(), "other node"))
			return
		}
	}
}
