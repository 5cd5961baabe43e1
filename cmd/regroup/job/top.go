package job

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/top"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/services/cluster"
	"github.com/regroup-io/regroup/services/cluster/view"
	"github.com/regroup-io/regroup/services/gateway/brokers"
)

// refreshEvery is the default interval of frames. The brokers are asked less often.
const (
	refreshEvery = time.Second
	observeEvery = 5 * time.Second
)

func topCommand(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "top", Short: "Watch jobs, nodes, services and brokers", Args: command.Exactly(),
		Long:    "Shows the jobs that have not ended, the nodes, the services and the brokers, until q is pressed; Enter opens a job, / filters, 1 to 8 sort, and ? lists the keys. STEPS/S is the rate between two frames with a newer step. LAG is what a broker's copy lacks that is the most behind; WAITING is what a service has still to handle. What needs attention of them is marked with !. Without a terminal, and with -o, it shows them once.",
		Example: command.Examples("regroup top", "regroup top --every 5s", "regroup top -o json | jq '.nodes[] | select(.state != \"ready\")'"),
	}
	every := cmd.Flags().Duration("every", refreshEvery, "time between two frames")
	form := command.Reading(cmd, command.Table, command.JSON, command.YAML)
	cmd.RunE = env.Connected(func(ctx context.Context, s command.Session) error {
		if *every <= 0 {
			return errcode.Errorf(errcode.Invalid, "--every %s: give a time above 0", *every)
		}
		from := &topSource{env: env, s: s, observer: brokers.NewObserver(s.Brokers()), newest: map[ident.JobID]*newestLines{}}
		if env.IsTerminal && form.Is(command.Table) {
			o := top.Options{Source: from, Every: *every, Palette: s.Palette, Now: env.Now, Out: env.Out}
			if in, ok := env.In.(*os.File); ok && boot.IsTerminal(in) && !boot.Background(in) {
				o.In = in
			}
			s.Waits, s.Warn = func(string) {}, func(error) {} // the screen says it
			ctx, off := boot.Interruptible(ctx, nil)
			defer off()
			return top.Watch(ctx, o)
		}
		o, err := from.Overview(ctx)
		if err != nil {
			return err
		}
		if written, err := form.Write(env.Out, o); written {
			return err
		}
		return top.Draw(env.Out, s.Palette, o)
	})
	return cmd
}

// topSource is what the connected servers say.
type topSource struct {
	env      command.Env
	s        command.Session
	observer *brokers.Observer
	report   brokers.Report

	mu     sync.Mutex
	newest map[ident.JobID]*newestLines
}

// Overview implements top.Source.
func (c *topSource) Overview(ctx context.Context) (top.Overview, error) {
	o := top.Overview{At: c.env.Now(), Nodes: []events.NodeView{}, Silent: []string{}}
	all, err := c.s.Jobs(ctx)
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
	c.s.Live(ctx, live...)
	o.Jobs = view.Jobs(views)
	nodes, err := c.s.Nodes(ctx)
	if err != nil {
		return o, err
	}
	o.Nodes = append(o.Nodes, nodes...)
	o.Silent = append(o.Silent, c.s.Silent(ctx)...)
	if o.At.Sub(c.report.At) >= observeEvery {
		c.report = c.observer.Observe(ctx, c.env.Now)
	}
	o.Brokers = c.report
	return o, ctx.Err()
}

// Job implements top.Source.
func (c *topSource) Job(ctx context.Context, id ident.JobID) (view.Job, error) {
	v, err := c.s.Job(ctx, string(id))
	if err != nil {
		return view.Job{}, err
	}
	c.s.Live(ctx, &v)
	return view.JobOf(v), nil
}

// newestLines are the newest lines of a job, to which those that come are added.
type newestLines struct {
	all  []view.Line
	last uint64 // sequence of the newest chunk seen
}

// linesKept is how many lines of a job are kept.
const linesKept = 200

// Lines implements top.Source.
func (c *topSource) Lines(ctx context.Context, id ident.JobID) ([]view.Line, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.newest[id]
	if n == nil {
		n = &newestLines{}
		c.newest[id] = n
	}
	err := c.s.Logs(ctx, id, cluster.LogsFrom{After: n.last}, func(l view.Line) error {
		if l.Open {
			return nil // its next state comes
		}
		n.last = max(n.last, l.Sequence)
		if n.all = append(n.all, l); len(n.all) > 2*linesKept {
			n.all = append(n.all[:0], n.all[linesKept:]...)
		}
		return nil
	})
	return append([]view.Line{}, n.all[max(0, len(n.all)-linesKept):]...), err
}
