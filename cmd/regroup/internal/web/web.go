// Package web runs a gateway in a process of the command line, and remembers where it is, so that
// regroup dashboard finds it.
package web

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/client"
	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/internal/durable"
	"github.com/regroup-io/regroup/services/gateway"
	"github.com/regroup-io/regroup/services/gateway/endpoint"
)

// Config is the configuration of a gateway from REGROUP_GATEWAY_* variables.
type Config struct {
	Listen  string `envconfig:"LISTEN" default:"127.0.0.1:8080" desc:"host:port of serve gateway; one that other machines can reach needs TLS and a token"`
	URL     string `envconfig:"URL" desc:"address of the gateway that clients ask: regroup dashboard and webhook, the Go and the Python client; empty = the one that this user runs on this machine"`
	Token   string `envconfig:"TOKEN" desc:"what clients must present, at least 16 characters; empty = a random one, kept in the state folder"`
	Tokens  string `envconfig:"TOKENS" desc:"path of the file of regroup auth token; empty = tokens.json in the state folder"`
	Hooks   string `envconfig:"WEBHOOKS" desc:"path of the file in which webhooks are kept; empty = webhooks.json in the state folder"`
	Private bool   `envconfig:"WEBHOOKS_PRIVATE" desc:"true = webhooks may reach addresses that are not of the public network"`
	Origin  string `envconfig:"WEBHOOKS_ORIGIN" default:"regroup" desc:"DNS name that stands for this cluster, with which targets of webhooks are asked for their permission"`
	TLSCert string `envconfig:"TLS_CERT" desc:"path of a PEM file with the certificate; empty = no TLS"`
	TLSKey  string `envconfig:"TLS_KEY" desc:"path of the key of that certificate"`
}

// DefaultTokens is the name of the file of tokens in a state folder.
const DefaultTokens = "tokens.json"

// Load reads the environment.
func Load() (Config, error) {
	var c Config
	return c, boot.Section("GATEWAY", &c)
}

// Flags adds the flags of serve gateway.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Listen, "listen", c.Listen, "host:port; one that other machines can reach needs TLS and a token (REGROUP_GATEWAY_LISTEN)")
	fs.StringVar(&c.Tokens, "tokens", c.Tokens, "`FILE` of regroup auth token (REGROUP_GATEWAY_TOKENS); default: tokens.json in the state folder")
	fs.StringVar(&c.Hooks, "webhooks", c.Hooks, "`FILE` in which webhooks are kept (REGROUP_GATEWAY_WEBHOOKS); default: webhooks.json in the state folder")
	fs.BoolVar(&c.Private, "webhooks-private", c.Private, "webhooks may reach private addresses and this machine (REGROUP_GATEWAY_WEBHOOKS_PRIVATE)")
	fs.StringVar(&c.Origin, "webhooks-origin", c.Origin, "DNS `NAME` that stands for this cluster at the targets of webhooks (REGROUP_GATEWAY_WEBHOOKS_ORIGIN)")
	fs.StringVar(&c.TLSCert, "tls-cert", c.TLSCert, "PEM `FILE` with the certificate (REGROUP_GATEWAY_TLS_CERT)")
	fs.StringVar(&c.TLSKey, "tls-key", c.TLSKey, "PEM `FILE` with the key of --tls-cert (REGROUP_GATEWAY_TLS_KEY)")
}

// AnyPort returns the configuration of a dashboard beside a run: on this machine, at a free port.
func (c Config) AnyPort() Config {
	return Config{Listen: "127.0.0.1:0", Token: c.Token, Tokens: c.Tokens}
}

// Running is a gateway that listens.
type Running struct {
	URL     string
	gateway *gateway.Gateway
	at      net.Listener
	record  string
}

// Open begins to listen, and writes where into the state folder of the process.
func Open(c Config, p *boot.Process) (*Running, error) {
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
	r := &Running{URL: scheme + "://" + l.Addr().String(), gateway: g, at: l, record: client.RecordFile(p.Config.StateDir)}
	if err := write(client.Record{URL: r.URL, Token: g.Token(), PID: os.Getpid()}, r.record); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return r, nil
}

// Link returns an address that opens the dashboard once.
func (r *Running) Link() string { return r.URL + r.gateway.LinkPath() }

// Serve answers until ctx ends.
func (r *Running) Serve(ctx context.Context) error {
	defer os.Remove(r.record)
	return r.gateway.Serve(ctx, r.at)
}

// Close ends a gateway that does not serve.
func (r *Running) Close() {
	_ = r.at.Close()
	_ = os.Remove(r.record)
}

// write leaves a record where client.Find reads it.
func write(r client.Record, file string) error {
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
