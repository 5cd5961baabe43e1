// Package gateway serves Regroup over HTTP, for programs and for people: CloudEvents in, jobs and
// nodes as resources, streams of events and output, metrics, and the pages of the dashboard. It
// decides nothing: commands go to their services as events, and their facts are the answers.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/services/cluster"
	"github.com/regroup-io/regroup/services/gateway/dashboard"
	"github.com/regroup-io/regroup/services/gateway/feed"
	"github.com/regroup-io/regroup/services/gateway/tokens"
	"github.com/regroup-io/regroup/services/gateway/webhooks"
)

// Options configure a gateway. Ports and Logger must be set.
type Options struct {
	Ports broker.Ports
	// Token is what a client must present who may do everything; empty = a random one.
	Token string
	// Tokens is the path of a file with more tokens (package tokens); empty = none.
	Tokens string
	// Webhooks is the path of the file in which webhooks are kept; empty = there are none.
	Webhooks        string
	WebhooksOrigin  string // DNS name of this sender for their targets; empty = regroup
	WebhooksPrivate bool   // they may reach addresses that are not of the public network
	// Secure: the listener speaks TLS.
	Secure  bool
	Version string
	Logger  *slog.Logger
	Spans   func(events.Span) // receives the spans of commands; nil = nobody; must not block
	Now     func() time.Time  // nil = time.Now

	Patience     Patience      // the zero value = DefaultPatience
	AnswerWithin time.Duration // for the fact that answers a command; 0 = 15 s
}

// Patience is how long a client may take.
type Patience struct {
	Header, Read time.Duration // to send the header; to send all of a request
	Write        time.Duration // to receive an answer, or the next part of a stream
	Idle         time.Duration // between two requests on a connection
}

// DefaultPatience is enough for slow networks.
func DefaultPatience() Patience {
	return Patience{Header: 5 * time.Second, Read: 20 * time.Second, Write: 30 * time.Second, Idle: 2 * time.Minute}
}

// Gateway is one HTTP server of the control plane. Any number of replicas may run; each has the
// sessions of the people that logged in there.
type Gateway struct {
	Options

	feed     *feed.Feed
	commands commands
	keys     *keys
	hooks    *webhooks.Hooks
	metrics  *metrics
	streams  shares
	awaited  awaited
	routes   []route
	document []byte // openapi.json
	assets   http.Handler
}

// New returns a gateway that reads nothing yet.
func New(o Options) (*Gateway, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Patience == (Patience{}) {
		o.Patience = DefaultPatience()
	}
	if o.Spans == nil {
		o.Spans = func(events.Span) {}
	}
	o.AnswerWithin = cmp.Or(o.AnswerWithin, answerWithin)
	g := &Gateway{Options: o}
	g.feed = feed.New(o.Ports, func(subject string, err error) {
		if err != nil && !errors.Is(err, context.Canceled) {
			o.Logger.Warn("cannot be read", "subject", subject, "code", string(errcode.Of(err)), "reason", err.Error())
		}
	})
	g.commands = commands{
		Asker: cluster.Asker{Ports: o.Ports, Facts: g.feed, Within: o.AnswerWithin, Retry: cluster.Retry}, feed: g.feed, now: o.Now, spans: o.Spans,
	}
	g.keys = newKeys(o.Token, tokens.Open(o.Tokens), o.Now)
	g.metrics = newMetrics(g)
	g.feed.Observe(g.metrics.fact)
	var err error
	if g.hooks, err = webhooks.Open(webhooks.Options{File: o.Webhooks, AllowPrivate: o.WebhooksPrivate, Origin: o.WebhooksOrigin, Feed: g.feed, Logger: o.Logger, Now: o.Now}); err != nil {
		return nil, err
	}
	if g.assets, err = dashboard.Handler(); err != nil {
		return nil, err
	}
	g.routes = g.table()
	if g.document, err = describe(g.routes, o.Version); err != nil {
		return nil, err
	}
	return g, nil
}

// Token returns what a client must present.
func (g *Gateway) Token() string { return g.keys.token }

// Serve reads from the brokers and answers on l until ctx ends; then it waits a moment for
// requests that are being answered.
func (g *Gateway) Serve(ctx context.Context, l net.Listener) error {
	running, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	for _, run := range []func(context.Context) error{g.feed.Run, g.hooks.Run} {
		running.Go(func() error {
			err := run(ctx)
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the end of the context is its normal end
			}
			return err
		})
	}
	s := g.server(ctx)
	running.Go(func() error {
		defer cancel()
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return errcode.Errorf(errcode.Unavailable, "gateway: %w", err)
		}
		return nil
	})
	running.Go(func() error {
		<-ctx.Done()
		last, done := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
		defer done()
		if err := s.Shutdown(last); err != nil {
			return s.Close()
		}
		return nil
	})
	return running.Wait()
}

// server has a time-out for each thing that a client can do slowly. Streams extend theirs while
// they write.
func (g *Gateway) server(ctx context.Context) *http.Server {
	return &http.Server{
		Handler:           g.handler(),
		ReadHeaderTimeout: g.Patience.Header,
		ReadTimeout:       g.Patience.Read,
		WriteTimeout:      g.Patience.Write,
		IdleTimeout:       g.Patience.Idle,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(g.Logger.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
}

// Bounds of what a client may take.
const (
	closeWithin  = 2 * time.Second
	answerWithin = 15 * time.Second // for the fact that answers a command
	maxHeader    = 64 << 10
	maxStreams   = 4096
	streamsEach  = 512 // of one token that is no operator's
	operatorsOwn = 512 // of maxStreams, for operators alone
)
