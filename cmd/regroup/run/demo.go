package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/cmd/regroup/serve"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/exitcode"
	"github.com/regroup-io/regroup/services/cluster"
	"github.com/regroup-io/regroup/services/cluster/timeline"
	"github.com/regroup-io/regroup/services/discovery"
)

// Steps at which the faults fire, once four workers train. An epoch has 141 of them; each lasts
// long enough to watch.
const (
	killWorkerAt = 100
	killNodeAt   = 200
	addNodeAt    = 350
	stepTime     = "15ms"
)

// DemoCommand is `regroup demo`: a real training job on three nodes, real faults at given steps,
// and a report.
func DemoCommand(env command.Env, c *boot.Config) *cobra.Command {
	var output string
	var epochs int
	cmd := &cobra.Command{
		Use: "demo", Short: "Train MNIST on three nodes, with faults, and show how it went", Args: cobra.NoArgs,
		Example: command.Examples("regroup demo", "regroup demo -o json", "regroup trace mnist      # afterwards: one waterfall per incident"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return errcode.Errorf(errcode.Invalid, "-o %q: use text or json", output)
			}
			d := &demo{env: env, config: *c, palette: env.Palette(cmd, env.ErrIsTerminal), json: output == "json", epochs: epochs, talk: env.Err}
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text, or json: one object at the end on stdout")
	cmd.Flags().IntVar(&epochs, "epochs", 5, "passes over the 9,000 training images")
	return cmd
}

type demo struct {
	env     command.Env
	config  boot.Config
	palette screen.Palette
	json    bool
	epochs  int
	nodes   *nodes
	facts   []events.Event
	talk    io.Writer // Err, above its status line while there is one
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.talk, format+"\n", args...) }

func (d *demo) run(parent context.Context) error {
	worker, err := workerPath("mnist")
	if err != nil {
		return err
	}
	l, err := serve.OpenTemporary(parent, d.config)
	if err != nil {
		return err
	}
	defer l.Close()
	l.Discovery.Quarantine = discovery.NoQuarantine() // its faults are intended, and it may run several times in a row
	d.nodes = &nodes{url: l.URL, secret: l.Secret, dir: filepath.Join(l.Process.Config.StateDir, "demo"), running: map[string]*exec.Cmd{}}
	defer d.nodes.stop()
	ctx, restore := boot.Interruptible(parent, nil)
	defer restore()
	var v events.JobView
	err = l.During(ctx, func(ctx context.Context) (err error) {
		defer d.nodes.stop() // workers end first, so that the services still process their exits
		v, err = d.train(ctx, cluster.New(l.Process.Ports, cluster.RunSource), worker)
		return err
	})
	if forgotten := forget(context.WithoutCancel(parent), l); forgotten != nil {
		d.say("its nodes stay in the list of nodes for a day: %v", forgotten)
	}
	if err != nil {
		if errors.Is(err, boot.ErrInterrupted) {
			return &exitcode.Error{Code: exitcode.Interrupted}
		}
		return err
	}
	if !d.json {
		if err := d.show(v); err != nil {
			return err
		}
	}
	return report(d.env.Out, d.env.Err, d.palette, v, d.json)
}

func (d *demo) train(ctx context.Context, c *cluster.Client, worker string) (events.JobView, error) {
	if err := stopLeftovers(ctx, c); err != nil {
		return events.JobView{}, err
	}
	d.say("three nodes: node-a with 2 slots, node-b and node-c with 1 each; data in %s", d.nodes.dir)
	first := ident.Incarnation(ulid.Make().String())
	for _, n := range []struct {
		name  string
		slots int
	}{{"node-a", 2}, {"node-b", 1}, {"node-c", 1}} {
		if err := d.nodes.start(n.name, n.slots); err != nil {
			return events.JobView{}, err
		}
	}
	if err := c.AwaitNodes(ctx, first, "node-a", "node-b", "node-c"); err != nil {
		return events.JobView{}, fmt.Errorf("%w\n%s", err, d.nodes.lastWords())
	}
	job, err := c.Submit(ctx, spec.Job{
		Name: "mnist", Command: []string{worker, "-epochs", fmt.Sprint(d.epochs), "-step-time", stepTime}, Recovery: spec.RecoveryInProcess,
		Workers: spec.Workers{Min: 2, Max: 4}, Data: spec.Data{Samples: 9000},
	})
	if err != nil {
		return events.JobView{}, err
	}
	d.say("%s: 2 to 4 workers; a worker dies at step %d, node-c at step %d, node-d joins at step %d", job, killWorkerAt, killNodeAt, addNodeAt)
	f := &faults{demo: d}
	w := NewWatcher(WatchOptions{
		Client: c, Job: job, Err: d.env.Err, Palette: d.palette, Terminal: d.env.ErrIsTerminal,
		OnFact: func(e events.Event) {
			d.facts = append(d.facts, e)
			f.fact(e.Body)
		},
		OnProgress: f.progress,
	})
	d.talk = w.Errors()
	v, err := w.Run(ctx)
	if err == nil && !v.State.Terminal() {
		err = fmt.Errorf("%s has not ended", job)
	}
	return v, errors.Join(err, f.failed())
}

func lost(i events.IncidentClosed) string {
	if i.StepsLost == nil {
		return "unknown"
	}
	return fmt.Sprint(*i.StepsLost)
}

func (d *demo) show(v events.JobView) error {
	out := d.env.Out
	row := func(i events.IncidentClosed) []string {
		p := i.Phases
		row := []string{fmt.Sprintf("#%d", i.Incident), string(i.Cause.Kind), fmt.Sprintf("%s→%s", i.From, i.To)}
		for _, x := range []float64{p.Notice, p.Abort, p.Judge, p.Regroup, p.Sync, p.FirstStep, i.TotalMS} {
			row = append(row, fmt.Sprintf("%.1f", x))
		}
		return append(row, lost(i))
	}
	fmt.Fprintf(out, "\nincidents (milliseconds)\n")
	if err := screen.TableOf(out, d.palette, []string{"", "CAUSE", "GEN", "NOTICE", "ABORT", "JUDGE", "REGROUP", "SYNC", "FIRST STEP", "TOTAL", "STEPS LOST"}, v.Incidents, row); err != nil {
		return err
	}
	fmt.Fprintln(out)
	g := screen.Gantt{Palette: d.palette}
	if err := g.Draw(out, timeline.New(d.facts, time.Now())); err != nil {
		return err
	}
	if a, ok := v.Metrics["accuracy"]; ok {
		fmt.Fprintf(out, "\ntest accuracy %.3f\n", a)
	}
	return nil
}
