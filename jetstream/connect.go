// Package jetstream implements the ports of package broker on NATS JetStream. It is the only
// package of the tree that imports NATS.
//
//	Connect     -> Conn       one connection; Conn.Ports gives broker.Ports
//	Conn.Ensure, Conn.Verify  the streams and buckets, as data in package topology
//
// Two rules hold everywhere. Reads for decisions go to the stream's leader, because
// replicas answer direct gets from their own, possibly older, copy. Every reader keeps its own
// position and recreates its consumer after any error, because the server forgets consumers in
// memory when it restarts.
package jetstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream/identity"
	"github.com/regroup-io/regroup/jetstream/presence"
	"github.com/regroup-io/regroup/jetstream/refusal"
	"github.com/regroup-io/regroup/jetstream/server"
)

// Times for detecting a dead peer and reconnecting. nats.go's defaults are for interactive use: it
// gives up after 60 attempts and detects a frozen server after minutes.
const (
	// A silent server is given up at the third, so that its agents have reconnected elsewhere
	// before they count as lost.
	pingInterval   = 500 * time.Millisecond
	pingsOut       = 2
	reconnectWait  = 250 * time.Millisecond
	refusedWait    = 4 * time.Second // at most, where the server refuses the user
	connectTimeout = 2 * time.Second
	drainLimit     = 5 * time.Second
)

// ConnectOptions configure a connection.
type ConnectOptions struct {
	Server      *server.Server // connect inside the process; takes precedence over URL
	URL         string         // nats://[user:password@]host:port, several separated by commas
	Name        string         // shown in the server's connection list
	Credentials string         // path of a NATS credentials file; empty = none
	RootCA      string         // path of a PEM file to verify the server with; empty = the system's authorities
	ClientCert  string         // paths of PEM files with the client's certificate and key; both or none
	ClientKey   string
	InboxPrefix string        // prefix of reply subjects; empty = the one that the credentials name, or _INBOX
	Secret      string        // of a server that was started with one, unless URL has a user
	System      server.System // access to the system account; default: that of Server
	// Maximum random delay of reconnects; 0 = 250 ms. Thousands of agents need seconds.
	Jitter time.Duration
	Logger *slog.Logger // nil = silent

	own server.User
}

// Conn is a connection to NATS. It reconnects for ever, until Close.
type Conn struct {
	opt     ConnectOptions
	nc      *nats.Conn
	js      js.JetStream
	log     *slog.Logger
	state   *state
	refused refusal.Subjects
	link    counted
	failed  atomic.Pointer[error] // of the last attempt to connect; nil after a connection
	clock   clock
	dialer  presence.Dialer
	creds   *identity.File // nil = none

	forbidden atomic.Pointer[string] // the newest message that a server has not permitted
	refusals  atomic.Int64           // how often a server has refused the user since the last connection
}

// Connect waits until the connection is established, a server refuses the user, or ctx ends:
// Unavailable with the last reason.
func Connect(ctx context.Context, o ConnectOptions) (*Conn, error) {
	c := &Conn{opt: o, log: o.Logger, state: newState(), dialer: presence.Dialer{Timeout: connectTimeout}}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if o.Server == nil && o.URL == "" {
		return nil, errcode.Errorf(errcode.Invalid, "connect to NATS: no URL is given")
	}
	if err := c.opt.identify(); err != nil {
		return nil, err
	}
	nc, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	c.nc = nc
	if c.js, err = js.New(nc, js.WithDefaultTimeout(requestLimit), js.WithPublishAsyncTimeout(requestLimit)); err != nil {
		nc.Close()
		return nil, errcode.Errorf(errcode.Internal, "JetStream context: %w", err)
	}
	if err := c.state.await(ctx); err != nil {
		nc.Close()
		return nil, c.unreached(err)
	}
	if c.creds != nil {
		go c.renewing()
	}
	return c, nil
}

// begin tries the servers in turn until one admits the user. A refusal ends it: unlike the absence
// of a server it does not pass by itself.
func (c *Conn) begin(ctx context.Context) (*nats.Conn, error) {
	o := nats.GetDefaultOptions()
	for s := range strings.SplitSeq(c.opt.URL, ",") {
		if s = strings.TrimSuffix(strings.TrimSpace(s), "/"); s != "" {
			o.Servers = append(o.Servers, s)
		}
	}
	for _, set := range c.options(c.opt) {
		if err := set(&o); err != nil {
			return nil, c.unusable(err)
		}
	}
	for {
		nc, err := attempt(ctx, o)
		if err == nil {
			return nc, nil
		}
		if bad, is := errors.AsType[*url.Error](err); is && bad.Op == "parse" {
			return nil, c.unusable(err)
		}
		if ctx.Err() != nil {
			return nil, c.unreached(context.Cause(ctx))
		}
		if cause := c.dialer.Failed(); errors.Is(err, nats.ErrNoServers) && cause != nil {
			err = cause
		}
		if c.failed.Store(&err); refusal.OfUser(err) || !c.state.pause(ctx, reconnectWait+rand.N(c.jitter())) {
			return nil, c.unreached(context.Cause(ctx))
		}
	}
}

// attempt tries each server once, and is abandoned when ctx ends: a server that accepts a
// connection and sends nothing delays it.
func attempt(ctx context.Context, o nats.Options) (*nats.Conn, error) {
	type made struct {
		nc  *nats.Conn
		err error
	}
	ch := make(chan made, 1)
	go func() {
		nc, err := o.Connect()
		ch <- made{nc, err}
	}()
	select {
	case m := <-ch:
		return m.nc, m.err
	case <-ctx.Done():
		go func() {
			if m := <-ch; m.nc != nil {
				m.nc.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// unusable returns the error of options with which no attempt is made.
func (c *Conn) unusable(err error) error {
	return errcode.Errorf(errcode.Invalid, "connect to NATS at %s: %w", redacted(c.opt), err)
}

// unreached returns the error of a connection that was not established before ctx ended.
func (c *Conn) unreached(err error) error {
	if last := c.failed.Load(); last != nil {
		err = *last
		if refusal.OfUser(err) {
			return errcode.Errorf(errcode.Unavailable, "the NATS server at %s %w: %s (%w)", redacted(c.opt), ErrRefused, c.opt.why(), err)
		}
	} else if errors.Is(err, context.DeadlineExceeded) {
		return errcode.Errorf(errcode.Unavailable, "no NATS server answers at %s: nothing was received from there in the time given", redacted(c.opt))
	}
	return errcode.Errorf(errcode.Unavailable, "no NATS server answers at %s: %w", redacted(c.opt), err)
}

// jitter returns the maximum random part of the time between two attempts.
func (c *Conn) jitter() time.Duration { return cmp.Or(c.opt.Jitter, 250*time.Millisecond) }

func (c *Conn) options(o ConnectOptions) []nats.Option {
	opts := []nats.Option{
		nats.Name(o.Name),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // a rotated credential must not end the process
		nats.CustomReconnectDelay(func(rounds int) time.Duration {
			wait := reconnectWait
			if c.refusals.Load() > 0 {
				wait = min(wait<<min(rounds, 16), refusedWait)
			}
			return wait + rand.N(c.jitter())
		}),
		nats.Timeout(connectTimeout),
		nats.DrainTimeout(drainLimit),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(pingsOut),
		// A signal or a publish that was buffered during a disconnection is worse than none: it
		// would arrive late and seem current.
		nats.ReconnectBufSize(-1),
		nats.ConnectHandler(func(*nats.Conn) {
			c.admitted()
			c.state.set(true)
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			c.admitted()
			c.log.Info("reconnected to NATS", "url", nc.ConnectedUrlRedacted())
			c.state.set(true)
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { c.failed.Store(&err) }),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			c.state.set(false)
			if !nc.IsClosed() && err != nil {
				c.log.Warn("connection to NATS is lost", "reason", err.Error())
			}
		}),
		nats.ClosedHandler(func(*nats.Conn) { c.state.close() }),
		nats.ErrorHandler(c.asyncError),
	}
	if o.Credentials != "" {
		c.creds = &identity.File{Path: o.Credentials}
		opts = append(opts, nats.UserJWT(c.creds.Claims, c.creds.Sign))
	}
	switch {
	case o.own.Token != "":
		opts = append(opts, nats.Token(o.own.Token))
	case o.own.Name != "":
		opts = append(opts, nats.UserInfo(o.own.Name, o.own.Password))
	}
	if prefix := o.inboxPrefix(); prefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(prefix))
	}
	return append(opts, c.dialOptions(o)...)
}

// dialOptions returns how a server is reached, without credentials.
func (c *Conn) dialOptions(o ConnectOptions) (opts []nats.Option) {
	if o.Server != nil {
		opts = append(opts, nats.InProcessServer(o.Server))
	} else {
		opts = append(opts, nats.SetCustomDialer(&c.dialer))
	}
	if o.RootCA != "" {
		// Records of full length from the start, as ServerTLS of package identity.
		opts = append(opts, nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12, DynamicRecordSizingDisabled: true}), nats.RootCAs(o.RootCA))
	}
	if o.ClientCert != "" || o.ClientKey != "" {
		opts = append(opts, nats.ClientCert(o.ClientCert, o.ClientKey))
	}
	return opts
}

// asyncError logs errors that no call returns. The server does not answer a publish that it does
// not permit: only this handler learns of it, and passes it to the waiting call by refused.
func (c *Conn) asyncError(_ *nats.Conn, sub *nats.Subscription, err error) {
	if refusal.OfUser(err) {
		if c.refusals.Add(1) == 1 {
			c.log.Error("the NATS server "+ErrRefused.Error()+": "+c.opt.why(), "reason", err.Error())
		}
		return
	}
	if errors.Is(err, nats.ErrPermissionViolation) {
		c.refused.Note(err.Error())
		level, reason := slog.LevelError, err.Error()
		if before := c.forbidden.Swap(&reason); before != nil && *before == reason { // such as a signal that is sent again and again
			level = slog.LevelDebug
		}
		c.log.Log(context.Background(), level, "NATS refused a message for want of permission", "reason", reason)
		return
	}
	subject := ""
	if sub != nil {
		subject = sub.Subject
	}
	c.log.Warn("NATS reports an error", "reason", err.Error(), "subject", subject)
}

// Ports returns the ports over this connection.
func (c *Conn) Ports() broker.Ports {
	return broker.Ports{Log: logPort{c}, Calls: calls{c}, Signals: signals{c}, Buckets: buckets{c}, Links: links{c}, Clock: storeClock{c}, Brokers: brokers{c}}
}

// Connected reports whether the connection is established.
func (c *Conn) Connected() bool { return c.nc.IsConnected() }

// Connects returns how often the connection was established, including the first time.
func (c *Conn) Connects() uint64 {
	_, epoch, _ := c.state.get()
	return epoch
}

// URL returns the server in use, without its password; empty while disconnected.
func (c *Conn) URL() string { return c.nc.ConnectedUrlRedacted() }

// ServerID identifies the start of the server that it is connected to.
func (c *Conn) ServerID() string { return c.nc.ConnectedServerId() }

// Reconnect closes the connection and makes a new one, to another server if several are known.
func (c *Conn) Reconnect() error {
	if err := c.nc.ForceReconnect(); err != nil {
		return errcode.Errorf(errcode.Unavailable, "reconnect to NATS: %w", err)
	}
	return nil
}

// Amounts returns what the credentials of the connection say of its amounts at a broker.
func (c *Conn) Amounts() access.Amounts {
	creds, err := os.ReadFile(c.opt.Credentials)
	if err != nil { // there are none
		return access.Amounts{}
	}
	return identity.AmountsOf(creds)
}

// Close waits for running handlers, sends pending messages, and closes the connection. Blocking
// methods of the ports return.
func (c *Conn) Close() {
	if err := c.nc.Drain(); err != nil {
		c.nc.Close() // it was not connected: there is nothing to drain
	}
	timer := time.NewTimer(drainLimit + time.Second)
	defer timer.Stop()
	select {
	case <-c.state.closed():
	case <-timer.C:
		c.nc.Close()
		<-c.state.closed()
	}
}

func redacted(o ConnectOptions) string {
	if o.Server != nil {
		return "this process"
	}
	var out []string
	for _, s := range strings.Split(o.URL, ",") {
		if u, err := url.Parse(strings.TrimSpace(s)); err == nil {
			s = u.Redacted()
		}
		out = append(out, s)
	}
	return strings.Join(out, ",")
}

// identify determines who a connection inside the process is, and who one is that knows a secret.
func (o *ConnectOptions) identify() error {
	u, err := url.Parse(o.URL)
	named := err == nil && u.User != nil
	switch {
	case o.Credentials != "" || named:
	case o.Server != nil && o.Server.NeedsCredentials():
		return errcode.Errorf(errcode.Invalid, "the configuration of the NATS server does not say who this process is: give credentials with --creds, or a user with --server nats://USER:PASSWORD@HOST")
	case o.Server != nil:
		o.own = o.Server.Inside()
	case o.Secret != "":
		o.own = server.User{Name: server.SecretUser, Password: o.Secret}
	}
	return nil
}

// why says what is wrong with who this process says it is, or what it does not say.
func (o ConnectOptions) why() string {
	u, err := url.Parse(o.URL)
	switch {
	case o.Credentials != "":
		return o.Credentials + " is revoked, has expired, or is of another cluster"
	case err == nil && u.User != nil:
		return "it has no such user, or the user has another password"
	case o.own.Name == server.SecretUser:
		return "REGROUP_SECRET is not what it was where the server was started"
	}
	return "it asks for credentials, and none are given: set REGROUP_SECRET to what it was where the server was started, or name those of regroup auth (--creds, --auth, a context; an agent: --join)"
}

// inboxPrefix returns the prefix of the subjects of replies.
func (o ConnectOptions) inboxPrefix() string {
	if o.InboxPrefix != "" || o.Credentials == "" {
		return o.InboxPrefix
	}
	creds, err := os.ReadFile(o.Credentials)
	if err != nil {
		return "" // the connection reports it
	}
	return identity.InboxPrefix(creds)
}
