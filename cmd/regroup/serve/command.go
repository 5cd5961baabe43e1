package serve

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream/server"
	"github.com/regroup-io/regroup/services/cluster"
)

// Command is `regroup serve`.
func Command(c *boot.Config, d *DiscoveryConfig, w *GatewayConfig) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "serve SERVICE",
		Short:   "Run one service of the control plane, or the broker",
		Long:    "Runs one part of the control plane in this process: discovery, scheduler, rendezvous, registry, gateway or nats. Any number of replicas of a service may run.",
		Example: command.Examples("regroup serve nats --listen 0.0.0.0:4222", "regroup serve registry --server nats://broker:4222", "REGROUP_SERVER=nats://broker:4222 regroup serve rendezvous"),
	}
	for _, name := range events.ServiceNames() {
		cmd.AddCommand(serviceCommand(c, d, name))
	}
	cmd.AddCommand(gatewayCommand(c, w), brokerCommand(c))
	for _, one := range cmd.Commands() {
		run := one.RunE
		one.RunE = func(cmd *cobra.Command, args []string) error {
			frugal()
			return run(cmd, args)
		}
	}
	return cmd
}

// frugal makes the garbage collector run when the heap has grown by a half, unless GOGC says
// something else: the views of ten thousand jobs are most of what the control plane holds, and
// their copies make room for little.
func frugal() {
	const growth = 50 // percent
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(growth)
	}
}

func serviceCommand(c *boot.Config, d *DiscoveryConfig, name string) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, Short: "Run a replica of the " + name + " service", Args: cobra.NoArgs,
		Example: command.Examples("regroup serve "+name+" --server nats://broker:4222", "REGROUP_SERVER=nats://broker:4222 regroup serve "+name),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serving(cmd, c, name, func(ctx context.Context, p *boot.Process) error {
				p.Logger.Info("serving", "service", name, "server", p.Conn.URL(), "instance", p.Instance)
				return p.WithHealth(ctx, nil, func(ctx context.Context) error { return Services(ctx, p, *d, name) })
			})
		},
	}
	if name == events.ServiceDiscovery {
		cmd.Example = command.Examples("regroup serve discovery --server nats://broker:4222", "regroup serve discovery --server nats://broker:4222 --hosts node-a:4,node-b:2", "regroup serve discovery --host-discovery-script ./hosts.sh --slots-per-host 8")
		d.HostFlags(cmd.Flags())
	}
	return cmd
}

// serving runs fn as a service until the command is interrupted.
func serving(cmd *cobra.Command, c *boot.Config, name string, fn func(ctx context.Context, p *boot.Process) error) error {
	ctx, stop := boot.Interruptible(cmd.Context(), nil)
	defer stop()
	p, err := open(ctx, cmd, c.Service(), name)
	if err != nil {
		return err
	}
	defer p.Close()
	return fn(ctx, p)
}

// open connects to the broker and waits for its streams.
func open(ctx context.Context, cmd *cobra.Command, c boot.Config, name string) (*boot.Process, error) {
	within, err := command.Within(cmd, c.Wait)
	if err != nil {
		return nil, err
	}
	c.Wait = within
	p, err := boot.Open(ctx, c, name, nil)
	if err != nil {
		return nil, err
	}
	if err := p.AwaitTopology(ctx); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func brokerCommand(c *boot.Config) *cobra.Command {
	var o server.Options
	var routes string
	var bare bool
	cmd := &cobra.Command{
		Use: "nats", Long: "Runs the embedded NATS server alone. With a password of the system account, given to discovery too, that hears at once when an agent dies.",
		Short: "Run the broker: a NATS server, by itself or in a cluster", Args: cobra.NoArgs,
		Example: command.Examples("regroup serve nats --listen 0.0.0.0:4222",
			"regroup serve nats --name n1 --listen :4222 --cluster regroup \\\n      --cluster-listen :6222 --routes n1:6222,n2:6222,n3:6222",
			"regroup init --server nats://n1:4222 --replicas 3",
			"regroup auth init --auth /etc/regroup && \\\n      regroup serve nats --auth /etc/regroup --listen :4222",
			"REGROUP_NATS_SYSTEM_PASSWORD=secret regroup serve nats"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := boot.Interruptible(cmd.Context(), nil)
			defer stop()
			c := c.Service()
			log, err := c.Logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			o.System = c.System.Server()
			if o.Auth = c.Auth; o.Auth != "" {
				o.System = server.System{} // the directory has its users
			} else if o.System.Password == "" && o.ConfigFile == "" {
				log.Info("nobody else has access to the system account: set REGROUP_NATS_SYSTEM_PASSWORD here and for discovery, so that it hears of agents that die")
			}
			if o.Auth == "" && o.ConfigFile == "" {
				o.Secret, o.Cluster.Password = c.Secret, c.Secret
			}
			o.Logger, o.StoreDir = log, filepath.Join(c.StateDir, "nats")
			if routes != "" {
				o.Cluster.Routes = strings.Split(routes, ",")
			}
			s, err := server.Start(o)
			if err != nil {
				return err
			}
			defer s.Shutdown()
			if o.Auth == "" && o.ConfigFile == "" && o.Secret == "" && !loopback(o.Listen) {
				log.Warn("anybody who reaches this broker can run commands on the nodes: give it identities (--auth, made by regroup auth init) or REGROUP_SECRET", "listen", o.Listen)
			}
			log.Info("broker listens", "url", s.ClientURL(), "store", o.StoreDir)
			p, err := boot.Open(ctx, c, boot.NameBroker, s)
			if err != nil {
				return err
			}
			defer p.Close()
			if o.Cluster.Name == "" && !bare { // the streams of a cluster are created once by `regroup init`, with replicas
				if err := p.Conn.Ensure(ctx, 1); err != nil {
					return err
				}
			}
			if o.Auth != "" {
				ctx, cancel := context.WithCancel(ctx)
				var keeping errgroup.Group
				keeping.Go(func() error { return p.Conn.KeepShares(ctx, log) })
				defer func() { cancel(); _ = keeping.Wait() }()
			}
			return p.WithHealth(ctx, s.CaughtUp, func(ctx context.Context) error { return guard(ctx, s, log) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Name, "name", "", "name of this server, unique in its cluster")
	f.StringVar(&o.Listen, "listen", "127.0.0.1:4222", "host:port for clients")
	f.StringVar(&o.Advertise, "advertise", "", "host:port that clients are told instead")
	f.StringVar(&o.ConfigFile, "nats-config", "", "nats-server configuration with accounts, TLS and permissions")
	f.StringVar(&o.Cluster.Name, "cluster", "", "name of the cluster, the same on every server")
	f.StringVar(&o.Cluster.Listen, "cluster-listen", "", "host:port for the other servers")
	f.BoolVar(&bare, "without-streams", false, "make no streams: for regroup restore")
	f.StringVar(&routes, "routes", "", "host:port of the other servers, separated by commas")
	return cmd
}

// InitCommand is `regroup init`.
func InitCommand(c *boot.Config) *cobra.Command {
	var replicas int
	cmd := &cobra.Command{
		Use: "init", Short: "Create the streams and buckets on a NATS server or cluster", Args: cobra.NoArgs,
		Example: command.Examples("regroup init --server nats://127.0.0.1:4222", "regroup init --server nats://n1:4222,nats://n2:4222 --replicas 3", "REGROUP_SERVER=nats://n1:4222 regroup init"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			wait, err := command.Within(cmd, c.Wait) // servers that have just started elect a leader first
			if err != nil {
				return err
			}
			own := *c
			own.Wait = wait
			ctx, cancel := context.WithTimeout(cmd.Context(), wait)
			defer cancel()
			p, err := boot.Open(ctx, own, boot.NameInit, nil)
			if err != nil {
				return err
			}
			defer p.Close()
			return p.Conn.Ensure(ctx, replicas)
		},
	}
	cmd.Flags().IntVar(&replicas, "replicas", 1, "copies of every stream: 1, 3 or 5")
	return cmd
}

// healthWithin bounds a health check: container engines have short timeouts.
const healthWithin = 3 * time.Second

// HealthCommand is `regroup health`, for container health checks.
func HealthCommand(c *boot.Config) *cobra.Command {
	return &cobra.Command{
		Use: "health", Short: "Ask the regroup process of this host whether it is ready", Args: cobra.NoArgs,
		Long:    "Asks the process that answers at --health whether it is ready, and exits with 0 if it is. Without an address it asks the services of the regroup up that this user runs here.",
		Example: command.Examples("regroup health --health 127.0.0.1:7479", "REGROUP_HEALTH=127.0.0.1:7479 regroup health", "docker inspect -f '{{.State.Health.Status}}' CONTAINER"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			within, err := command.Within(cmd, healthWithin)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), within)
			defer cancel()
			switch {
			case c.Health != "":
				return boot.AskHealth(ctx, c.Health)
			case !Shared(*c):
				return errcode.Errorf(errcode.Invalid, "no regroup up of this user runs here: for another process give its --health host:port or REGROUP_HEALTH")
			}
			own := *c
			own.Wait = within
			s, err := openShared(ctx, own)
			if err != nil {
				return err
			}
			defer s.Close()
			if silent := cluster.Silent(ctx, s.Ports.Calls); len(silent) > 0 {
				return errcode.Errorf(errcode.Unavailable, "regroup up is not ready: of %s none answers", strings.Join(silent, ", "))
			}
			return nil
		},
	}
}

// Advertised returns the address under which workers of other nodes reach this host, of either
// family: that from which it reaches the brokers at server, URLs separated by commas. If they are
// on this host, or in this process (server is empty), it is the first that is neither a loopback
// address nor of one link alone, and a loopback address if there is no other.
func Advertised(server string) string {
	for one := range strings.SplitSeq(server, ",") {
		if ip := routeTo(strings.TrimSpace(one)); ip != nil && ip.IsGlobalUnicast() {
			return ip.String()
		}
	}
	six := ""
	addrs, err := net.InterfaceAddrs()
	if err == nil {
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			switch {
			case !ok || !n.IP.IsGlobalUnicast():
			case n.IP.To4() != nil:
				return n.IP.String()
			case six == "":
				six = n.IP.String()
			}
		}
	}
	return cmp.Or(six, "127.0.0.1")
}

// routeWithin limits the search for the address of a broker by its name.
const routeWithin = 2 * time.Second

// routeTo returns the address from which this host sends to the broker of a URL; nil = unknown. It
// sends nothing.
func routeTo(server string) net.IP {
	if server != "" && !strings.Contains(server, "://") {
		server = "nats://" + server
	}
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	dial := net.Dialer{Timeout: routeWithin}
	c, err := dial.Dial("udp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "4222")))
	if err != nil {
		return nil
	}
	defer c.Close()
	if a, ok := c.LocalAddr().(*net.UDPAddr); ok {
		return a.IP
	}
	return nil
}

// isOurs returns an error if this machine has another address instead of one that it had. A machine
// whose only address is gone may get it back.
func isOurs(address, server string) error {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil //nolint:nilerr // nothing is known
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.String() == address {
			return nil
		}
	}
	if now := Advertised(server); !net.ParseIP(now).IsLoopback() {
		return errcode.Errorf(errcode.Conflict, "it was %s, and is %s now", address, now)
	}
	return nil
}
