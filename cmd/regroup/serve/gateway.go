package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/client"
	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/internal/durable"
	"github.com/regroup-io/regroup/internal/spawn"
	"github.com/regroup-io/regroup/services/gateway"
	"github.com/regroup-io/regroup/services/gateway/endpoint"
)

// gatewayCommand is `regroup serve gateway`.
func gatewayCommand(c *boot.Config, w *GatewayConfig) *cobra.Command {
	cmd := &cobra.Command{
		Use: "gateway", Short: "Serve HTTP and the dashboard", Args: cobra.NoArgs,
		Long: "Serves jobs, nodes, events and output over HTTP (docs/http.md), metrics for Prometheus, and the pages of the dashboard. Without TLS and a token it listens on this machine only. regroup dashboard prints a link to it.",
		Example: `  regroup serve gateway --server nats://broker:4222
  regroup serve gateway --listen 127.0.0.1:9000
  REGROUP_GATEWAY_TOKEN=... regroup serve gateway --listen :8443 \
      --tls-cert cert.pem --tls-key key.pem`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serving(cmd, c, "gateway", func(ctx context.Context, p *boot.Process) error {
				g, err := OpenGateway(*w, p)
				if err != nil {
					return err
				}
				p.Logger.Info("serving", "service", "gateway", "server", p.Conn.URL(), "url", g.URL)
				if boot.IsTerminal(os.Stderr) { // a link in the log of a service would let its readers in
					fmt.Fprintf(cmd.ErrOrStderr(), "dashboard: %s\n", g.Link())
				}
				return p.WithHealth(ctx, nil, g.Serve)
			})
		},
	}
	boot.Flags(cmd.Flags(), "GATEWAY", w)
	return cmd
}

// Beside runs a gateway beside fn until fn ends; nil = none.
func Beside(ctx context.Context, g *Gateway, fn func(context.Context) error) error {
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
func DashboardCommand(c *boot.Config, w *GatewayConfig) *cobra.Command {
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

// GatewayConfig is the configuration of a gateway from REGROUP_GATEWAY_* variables.
type GatewayConfig struct {
	Listen string `envconfig:"LISTEN" flag:"listen" usage:"host:port; one that other machines can reach needs TLS and a token (%)" default:"127.0.0.1:8080" desc:"host:port of serve gateway; one that other machines can reach needs TLS and a token"`
	URL    string `envconfig:"URL" desc:"address of the gateway that clients ask: regroup dashboard and webhook, the Go and the Python client; empty = the one that this user runs on this machine"`
	Token  string `envconfig:"TOKEN" desc:"what clients must present, at least 16 characters; empty = a random one, kept in the state folder"`
	Serving
}

// Serving is what a gateway serves with, at whichever address: serve gateway and up have flags for
// it.
type Serving struct {
	Tokens  string `envconfig:"TOKENS" flag:"tokens" usage:"'FILE' of regroup auth token (%); default: tokens.json in the state folder" desc:"path of the file of regroup auth token; empty = tokens.json in the state folder"`
	Hooks   string `envconfig:"WEBHOOKS" flag:"webhooks" usage:"'FILE' in which webhooks are kept (%); default: webhooks.json in the state folder" desc:"path of the file in which webhooks are kept; empty = webhooks.json in the state folder"`
	Private bool   `envconfig:"WEBHOOKS_PRIVATE" flag:"webhooks-private" usage:"webhooks may reach private addresses and this machine (%)" desc:"true = webhooks may reach addresses that are not of the public network"`
	Origin  string `envconfig:"WEBHOOKS_ORIGIN" flag:"webhooks-origin" usage:"DNS 'NAME' that stands for this cluster at the targets of webhooks (%)" default:"regroup" desc:"DNS name that stands for this cluster, with which targets of webhooks are asked for their permission"`
	TLSCert string `envconfig:"TLS_CERT" flag:"tls-cert" usage:"PEM 'FILE' with the certificate (%)" desc:"path of a PEM file with the certificate; empty = no TLS"`
	TLSKey  string `envconfig:"TLS_KEY" flag:"tls-key" usage:"PEM 'FILE' with the key of --tls-cert (%)" desc:"path of the key of that certificate"`
}

// DefaultTokens is the name of the file of tokens in a state folder.
const DefaultTokens = "tokens.json"

// LoadGateway reads the environment.
func LoadGateway() (GatewayConfig, error) {
	var c GatewayConfig
	return c, boot.Section("GATEWAY", &c)
}

// AnyPort returns the configuration of a dashboard beside a run: on this machine, at a free port.
func (c GatewayConfig) AnyPort() GatewayConfig {
	return GatewayConfig{Listen: "127.0.0.1:0", Token: c.Token, Serving: Serving{Tokens: c.Tokens, Private: c.Private, Origin: c.Origin}}
}

// Gateway is a gateway that listens.
type Gateway struct {
	URL     string
	gateway *gateway.Gateway
	at      net.Listener
	record  string
}

// OpenGateway begins to listen, and writes where into the state folder of the process.
func OpenGateway(c GatewayConfig, p *boot.Process) (*Gateway, error) {
	l, secure, err := endpoint.Endpoint{Listen: c.Listen, Token: c.Token, TLSCert: c.TLSCert, TLSKey: c.TLSKey}.Open()
	if err != nil {
		return nil, err
	}
	g, err := gateway.New(gateway.Options{
		Ports: p.Ports, Token: c.Token, Tokens: cmp.Or(c.Tokens, filepath.Join(p.Config.StateDir, DefaultTokens)),
		Webhooks: cmp.Or(c.Hooks, filepath.Join(p.Config.StateDir, "webhooks.json")), WebhooksPrivate: c.Private, WebhooksOrigin: c.Origin, Secure: secure, Version: p.Config.Version, Logger: p.Logger.With("service", "gateway"), Spans: p.Recorder.Record,
	})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	scheme := "http"
	if secure {
		scheme = "https"
	}
	r := &Gateway{URL: scheme + "://" + l.Addr().String(), gateway: g, at: l, record: client.RecordFile(p.Config.StateDir)}
	if err := writeRecord(client.Record{URL: r.URL, Token: g.Token(), PID: os.Getpid()}, r.record); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return r, nil
}

// Link returns an address that opens the dashboard once.
func (r *Gateway) Link() string { return r.URL + r.gateway.LinkPath() }

// Serve answers until ctx ends.
func (r *Gateway) Serve(ctx context.Context) error {
	defer os.Remove(r.record)
	return r.gateway.Serve(ctx, r.at)
}

// writeRecord leaves a record where client.Find reads it.
func writeRecord(r client.Record, file string) error {
	b, err := json.Marshal(r)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err == nil {
		err = durable.WriteFile(file, append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	return nil
}
