package serve

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/client"
	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/web"
	"github.com/regroup-io/regroup/internal/spawn"
)

// gatewayCommand is `regroup serve gateway`.
func gatewayCommand(c *boot.Config, w *web.Config) *cobra.Command {
	cmd := &cobra.Command{
		Use: "gateway", Short: "Serve HTTP and the dashboard", Args: cobra.NoArgs,
		Long: "Serves jobs, nodes, events and output over HTTP (docs/http.md), metrics for Prometheus, and the pages of the dashboard. Without TLS and a token it listens on this machine only. regroup dashboard prints a link to it.",
		Example: `  regroup serve gateway --server nats://broker:4222
  regroup serve gateway --listen 127.0.0.1:9000
  REGROUP_GATEWAY_TOKEN=... regroup serve gateway --listen :8443 \
      --tls-cert cert.pem --tls-key key.pem`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := boot.Interruptible(cmd.Context(), nil)
			defer stop()
			p, err := open(ctx, cmd, c.Service(), "gateway")
			if err != nil {
				return err
			}
			defer p.Close()
			g, err := web.Open(*w, p)
			if err != nil {
				return err
			}
			p.Logger.Info("serving", "service", "gateway", "server", p.Conn.URL(), "url", g.URL)
			if boot.IsTerminal(os.Stderr) { // a link in the log of a service would let its readers in
				fmt.Fprintf(cmd.ErrOrStderr(), "dashboard: %s\n", g.Link())
			}
			return withHealth(ctx, p, nil, g.Serve)
		},
	}
	w.Flags(cmd.Flags())
	return cmd
}

// Beside runs a gateway beside fn until fn ends; nil = none.
func Beside(ctx context.Context, g *web.Running, fn func(context.Context) error) error {
	if g == nil {
		return fn(ctx)
	}
	running, ctx := errgroup.WithContext(ctx)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	running.Go(func() error { return g.Serve(serving) })
	running.Go(func() error {
		defer stop()
		return fn(ctx)
	})
	return running.Wait()
}

// DashboardCommand is `regroup dashboard`.
func DashboardCommand(c *boot.Config, w *web.Config) *cobra.Command {
	var show bool
	o := client.Options{Patience: -1}
	cmd := &cobra.Command{
		Use: "dashboard", Short: "Print a link that opens the dashboard once", Args: cobra.NoArgs,
		Long:    "Prints a link to the dashboard of the gateway that runs here: that of regroup up --dashboard, run --dashboard or serve gateway. The link works once, within five minutes. Of a gateway elsewhere give --url and REGROUP_GATEWAY_TOKEN.",
		Example: command.Examples("regroup dashboard", "regroup dashboard --open", "regroup dashboard --url https://cluster:8443"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			within, err := command.Timeout(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), within)
			defer cancel()
			o.Token, o.StateDir = w.Token, c.StateDir
			gateway, err := client.New(o)
			if err != nil {
				return err
			}
			link, err := gateway.Link(ctx)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), link)
			if show {
				return browse(ctx, link)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&show, "open", false, "open it in the browser too")
	cmd.Flags().StringVar(&o.URL, "url", w.URL, "address of a gateway elsewhere (REGROUP_GATEWAY_URL); its token is REGROUP_GATEWAY_TOKEN")
	return command.WithUsage(cmd)
}

// browse opens an address in the user's browser.
func browse(ctx context.Context, link string) error {
	cmd := exec.CommandContext(ctx, "xdg-open", link)
	err := spawn.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("open the browser: %w; open the link yourself", err)
	}
	return nil
}
