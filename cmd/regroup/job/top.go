package job

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/internal/exitcode"
	pause "github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/cluster/view"
	"github.com/regroup-io/regroup/services/gateway/brokers"
)

// Sequences of a terminal: the frame is written over the one before, without flicker.
const (
	clearScreen = "\x1b[H\x1b[2J"
	toTop       = "\x1b[H"
	clearToEnd  = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// refreshEvery is the default interval of frames. The brokers are asked less often.
const (
	refreshEvery = time.Second
	observeEvery = 5 * time.Second
)

// overview is one frame, and the JSON form of the command.
type overview struct {
	At     time.Time         `json:"at"`
	Jobs   []view.Job        `json:"jobs"` // that have not ended
	Nodes  []events.NodeView `json:"nodes"`
	Silent []string          `json:"silent"` // services without a replica that answers

	Brokers brokers.Report `json:"brokers"`
}

// progress is where a job was in the frame before.
type progress struct {
	step uint64
	at   time.Time
}

func top(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "top", Short: "Watch jobs, nodes, services and brokers", Args: command.Exactly(),
		Long:    "Shows the jobs that have not ended, the nodes, the services and the brokers, again and again until q is pressed. STEPS/S is the rate between two frames with a newer step. LAG is what a broker's copy lacks that is the most behind; WAITING is what a service has still to handle. What needs attention of them is marked with !. Without a terminal, and with -o, it shows them once.",
		Example: command.Examples("regroup top", "regroup top --every 5s", "regroup top -o json | jq '.nodes[] | select(.state != \"ready\")'"),
	}
	every := cmd.Flags().Duration("every", refreshEvery, "time between two frames")
	form := command.Output(cmd, command.Table, command.JSON, command.YAML)
	cmd.RunE = env.Connected(func(ctx context.Context, s command.Session) error {
		if *every <= 0 {
			return errcode.Errorf(errcode.Invalid, "--every %s: give a time above 0", *every)
		}
		if in, ok := env.In.(*os.File); ok && env.IsTerminal && form.Is(command.Table) {
			watching, restore := boot.UntilKey(ctx, in, "qQ")
			defer restore()
			err := watch(watching, env, s, form, *every)
			switch cause := context.Cause(watching); {
			case errors.Is(cause, boot.ErrPressed):
				return nil
			case errors.Is(cause, boot.ErrInterrupted):
				return &exitcode.Error{Code: exitcode.Interrupted}
			}
			return err
		}
		return watch(ctx, env, s, form, *every)
	})
	return cmd
}

// watch writes frames until ctx ends, or one where there is no terminal.
func watch(ctx context.Context, env command.Env, s command.Session, form *command.Format, every time.Duration) error {
	before, rates := map[ident.JobID]progress{}, map[ident.JobID]float64{}
	observer, report := brokers.NewObserver(s.Brokers()), brokers.Report{}
	for first := true; ; first = false {
		o, err := look(ctx, env, s)
		if err != nil {
			return err
		}
		if o.At.Sub(report.At) >= observeEvery {
			report = observer.Observe(ctx, env.Now)
		}
		o.Brokers = report
		if written, err := form.Write(env.Out, o); written {
			return err
		}
		measure(o, before, rates)
		var frame bytes.Buffer
		if err := draw(env, s.Palette, &frame, o, rates); err != nil {
			return err
		}
		if !env.IsTerminal {
			_, err := env.Out.Write(frame.Bytes())
			return err
		}
		begin := toTop
		if first {
			begin = clearScreen
		}
		text := begin + strings.ReplaceAll(frame.String(), "\n", clearToEnd+"\n") + clearBelow
		if _, err := fmt.Fprint(env.Out, text); err != nil {
			return err
		}
		if !pause.Sleep(ctx, every) {
			return context.Cause(ctx)
		}
	}
}

func look(ctx context.Context, env command.Env, s command.Session) (overview, error) {
	o := overview{At: env.Now(), Nodes: []events.NodeView{}, Silent: []string{}}
	all, err := s.Jobs(ctx)
	if err != nil {
		return o, err
	}
	var views []events.JobView
	for _, v := range all {
		if !v.State.Terminal() {
			views = append(views, v)
		}
	}
	live := make([]*events.JobView, len(views))
	for i := range views {
		live[i] = &views[i]
	}
	s.Live(ctx, live...)
	o.Jobs = view.Jobs(views)
	nodes, err := s.Nodes(ctx)
	if err != nil {
		return o, err
	}
	o.Nodes = append(o.Nodes, nodes...)
	o.Silent = append(o.Silent, s.Silent(ctx)...)
	return o, nil
}

// measure updates the rates of jobs, in steps per second, where a newer step is known.
func measure(o overview, before map[ident.JobID]progress, rates map[ident.JobID]float64) {
	for _, v := range o.Jobs {
		last, now := before[v.Job], progress{v.Step, v.StepAt}
		took := now.at.Sub(last.at).Seconds()
		switch {
		case now.step < last.step: // it went back to a commit
			delete(rates, v.Job)
		case last.step > 0 && now.step > last.step && took > 0:
			rates[v.Job] = float64(now.step-last.step) / took
		}
		before[v.Job] = now
	}
}

func draw(env command.Env, p screen.Palette, w *bytes.Buffer, o overview, rates map[ident.JobID]float64) error {
	ready := 0
	for _, n := range o.Nodes {
		if n.Schedulable() {
			ready++
		}
	}
	services := "all services answer"
	if len(o.Silent) > 0 {
		services = "no answer from " + strings.Join(o.Silent, ", ")
	}
	if env.IsTerminal {
		services += "  " + p.Faint("q ends it")
	}
	fmt.Fprintf(w, "%s  %s, %d of %s ready for work, %s\n\n", o.At.Format(time.TimeOnly), english.Plural(len(o.Jobs), "job"), ready, english.Plural(len(o.Nodes), "node"), services)
	err := screen.TableOf(w, p, []string{"JOB", "STATE", "WORKERS", "GEN", "STEP", "STEPS/S", "LAST INCIDENT", "AGE"}, o.Jobs, func(v view.Job) []string {
		rate := "-"
		if r, ok := rates[v.Job]; ok {
			rate = fmt.Sprintf("%.1f", r)
		}
		r := row(env, p, v.JobView, false)
		// Beyond the columns of ls: what happened last.
		return append(append(r[:5:5], rate, lastIncident(v.JobView)), r[6:]...)
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(w)
	err = screen.TableOf(w, p, []string{"NODE", "STATE", "SLOTS", "SINCE"}, o.Nodes, func(n events.NodeView) []string {
		return []string{string(n.Node), p.State(string(n.State)), fmt.Sprintf("%d/%d", n.SchedulableSlots(), n.Slots), env.Age(n.Since)}
	})
	if err != nil {
		return err
	}
	return drawBrokers(p, w, o.Brokers)
}

// lastIncident names the open incident of a job, or its newest one with how long it took.
func lastIncident(v events.JobView) string {
	if v.OpenIncident != nil {
		return string(v.OpenIncident.Cause.Kind) + ", open"
	}
	if len(v.Incidents) == 0 {
		return "-"
	}
	last := v.Incidents[len(v.Incidents)-1]
	return fmt.Sprintf("%s, %s", last.Cause.Kind, view.MS(last.TotalMS))
}
