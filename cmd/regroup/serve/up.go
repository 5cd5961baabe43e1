package serve

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/agent"
	"github.com/regroup-io/regroup/agent/gpus"
	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/jetstream/server"
	"github.com/regroup-io/regroup/services/cluster"
)

// clusterListen is the default cluster address of a broker that joins others.
const clusterListen = "0.0.0.0:6222"

// UpCommand is `regroup up`: the broker, all services and an agent in this process.
func UpCommand(c *boot.Config, a *AgentConfig, d *DiscoveryConfig, w *GatewayConfig) *cobra.Command {
	o := server.Options{Listen: "127.0.0.1:0"}
	var noAgent, dashboard bool
	cmd := &cobra.Command{
		Use: "up", Short: "Run everything in this process: broker, services and an agent", Args: cobra.NoArgs,
		Long: `Runs everything in this process. Other commands on this machine, as regroup run, use it by themselves.

Of three machines the first has --cluster-listen and the others --join; then everything is stored three times. With a list of hosts the
agents of other machines are used if it names them.`,
		Example: command.Examples("regroup up", "regroup up --dashboard", "regroup up --slots 4 --listen 0.0.0.0:4222",
			"regroup up --listen 0.0.0.0:4222 --cluster-listen 0.0.0.0:6222", "regroup up --listen 0.0.0.0:4222 --join HOST-OF-THE-FIRST:6222",
			"regroup up --listen 0.0.0.0:4222 --host-file hosts.txt"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var run *agent.Agent
			ctx, stop := boot.Interruptible(cmd.Context(), func() {
				if run != nil {
					run.Kill()
				}
			})
			defer stop()
			if err := needDashboard(cmd, dashboard); err != nil {
				return err
			}
			if err := d.Check(ctx); err != nil {
				return err
			}
			if len(o.Cluster.Routes) > 0 {
				o.Cluster.Listen = cmp.Or(o.Cluster.Listen, clusterListen)
			}
			o.Cluster.Join = len(o.Cluster.Routes) > 0
			o.Cluster.First = o.Cluster.Listen != "" && !o.Cluster.Join
			o.Name = cmp.Or(o.Name, a.Filled().Node)
			l, err := openLocal(ctx, *c, kindUp, 1, o)
			if err != nil {
				return err
			}
			defer l.Close()
			l.Discovery = *d
			if !noAgent {
				mine := *a
				mine.DepartWithin = 0 // the services stop too, so the work cannot move
				mine.GPUs = cmp.Or(mine.GPUs, gpus.Auto)
				if run, err = NewAgent(l.Process, mine); err != nil {
					return err
				}
				off, err := mine.Heed(run)
				if err != nil {
					return err
				}
				defer off()
			}
			var pages *Gateway
			if dashboard {
				if pages, err = OpenGateway(*w, l.Process); err != nil {
					return errcode.Errorf(errcode.Of(err), "the dashboard listens at REGROUP_GATEWAY_LISTEN (%s): %w", w.Listen, err)
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "dashboard: %s\n", pages.Link())
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "regroup is up: %s  data %s  stop with Ctrl-C\n", l.URL, c.StateDir)
			for _, text := range openness(*c, o) {
				fmt.Fprintln(cmd.ErrOrStderr(), text)
			}
			return l.Process.WithHealth(ctx, nil, func(ctx context.Context) error {
				return Beside(ctx, pages, func(ctx context.Context) error {
					return l.During(ctx, func(ctx context.Context) error {
						if o.Cluster.Listen == "" { // else other machines go on with them now
							defer sayWhatGoesOn(ctx, cmd.ErrOrStderr(), l)
						}
						return untilStopped(ctx, run)
					})
				})
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Listen, "listen", o.Listen, "host:port for clients and agents of other machines")
	f.StringVar(&o.Cluster.Listen, "cluster-listen", "", "host:port for the brokers of other machines; with three of them everything is stored three times")
	f.StringSliceVar(&o.Cluster.Routes, "join", nil, "host:port at which a broker of the cluster listens for others (its --cluster-listen)")
	f.StringVar(&o.Name, "broker", "", "name of the broker, unique in its cluster and kept for ever; empty = the node's")
	f.BoolVar(&dashboard, "dashboard", false, "serve the dashboard too, at REGROUP_GATEWAY_LISTEN, and print a link to it")
	cmd.Flags().BoolVar(&noAgent, "no-agent", false, "services only")
	a.Flags(cmd.Flags())
	d.HostFlags(cmd.Flags())
	command.Group(cmd.Flags(), dashboardFlags, func() { boot.Flags(cmd.Flags(), "GATEWAY", &w.Serving) })
	return cmd
}

// dashboardFlags is the heading of the flags that up has of serve gateway.
const dashboardFlags = "Dashboard flags, with --dashboard"

// needDashboard refuses these flags where nothing heeds them.
func needDashboard(cmd *cobra.Command, dashboard bool) error {
	var own pflag.FlagSet
	boot.Flags(&own, "GATEWAY", new(Serving))
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && !dashboard && own.Lookup(f.Name) != nil {
			err = errcode.Errorf(errcode.Invalid, "--%s has an effect with --dashboard alone: give that too", f.Name)
		}
	})
	return err
}

// Everything runs the services and, while they run, the agent (nil = none). When ctx ends, the
// agent stops its workers first, so that the services still process their exits.
func Everything(ctx context.Context, l *Local, a *agent.Agent) error {
	return l.During(ctx, func(ctx context.Context) error { return untilStopped(ctx, a) })
}

func untilStopped(ctx context.Context, a *agent.Agent) error {
	if a != nil {
		return a.Run(ctx)
	}
	<-ctx.Done()
	return nil
}

// leftWithin bounds the question which jobs have not ended, as the server stops.
const leftWithin = 2 * time.Second

// sayWhatGoesOn says that jobs which have not ended wait for the next start. It says nothing if it
// cannot find out.
func sayWhatGoesOn(ctx context.Context, to io.Writer, l *Local) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leftWithin)
	defer cancel()
	all, err := cluster.New(l.Process.Ports, cluster.RunSource).Jobs(ctx)
	all = slices.DeleteFunc(all, func(v events.JobView) bool { return v.State.Terminal() })
	if err == nil && len(all) > 0 {
		var names []string
		for _, v := range all[:min(len(all), 5)] {
			names = append(names, string(v.Job))
		}
		fmt.Fprintf(to, "not ended: %s (%s); the next regroup up goes on\n", english.Plural(len(all), "job"), strings.Join(names, ", "))
	}
}
