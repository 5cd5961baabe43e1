// Package boot holds what all long-running commands share: configuration, logger, telemetry,
// connection, health, signals.
package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/jetstream"
	"github.com/regroup-io/regroup/jetstream/server"
	"github.com/regroup-io/regroup/services/controller"
)

// Process is a connected process: the dependencies of every service and agent.
type Process struct {
	Config   Config
	Logger   *slog.Logger
	Conn     *jetstream.Conn
	Ports    broker.Ports
	Recorder *Recorder
	Meter    *Meter
	Output   *OutputLog
	Instance string // host and pid; identifies this replica
}

// Open connects to embedded (inside this process) or, if that is nil, to c.Server, and waits up to
// c.Wait for it.
func Open(ctx context.Context, c Config, name string, embedded *server.Server) (*Process, error) {
	log, err := c.Logger(os.Stderr)
	if err != nil {
		return nil, err
	}
	if embedded == nil && c.Server == "" {
		return nil, errcode.Errorf(errcode.Invalid, "no server: give --server or REGROUP_SERVER, or start one with: regroup up")
	}
	ctx, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	if c, err = c.As(name); err != nil {
		return nil, err
	}
	if err := c.current(); err != nil {
		return nil, err
	}
	o := jetstream.ConnectOptions{Server: embedded, URL: c.Server, Name: name, System: c.System.Server(), Logger: log}
	c.identify(&o)
	conn, err := jetstream.Connect(ctx, o)
	if errcode.Of(err) == errcode.Unavailable && embedded == nil && !errors.Is(err, jetstream.ErrRefused) {
		return nil, errcode.Errorf(errcode.Of(err), "%w; does it run, and is the address right? More time: --timeout", err)
	}
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	p := &Process{Config: c, Logger: log, Conn: conn, Ports: conn.Ports(), Instance: fmt.Sprintf("%s-%d", host, os.Getpid())}
	if err := p.observe(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return p, nil
}

// observe prepares the signals of OpenTelemetry.
func (p *Process) observe(ctx context.Context) (err error) {
	if p.Recorder, err = NewRecorder(p.Ports.Log, p.Instance); err != nil {
		return err
	}
	if p.Meter, err = NewMeter(ctx, events.ServiceAgent, p.Instance); err != nil {
		return err
	}
	p.Output, err = NewOutputLog(ctx, "worker", p.Instance) // as spans of workers have it
	return err
}

// AwaitTopology waits until the streams and buckets exist with the expected configuration, so that
// services may start before `regroup init`.
func (p *Process) AwaitTopology(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, p.Config.Wait)
	defer cancel()
	reason := ""
	for {
		err := p.Conn.Verify(limit)
		if err == nil {
			return nil
		}
		if err.Error() != reason && limit.Err() == nil {
			reason = err.Error()
			p.Logger.Warn("streams are not ready, waiting; create them with: regroup init", "reason", reason)
		}
		if wait.Sleep(limit, 250*time.Millisecond) {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
}

// Observe logs an observation of a controller and records its spans.
func (p *Process) Observe(o controller.Observation) {
	ctx := tracing.NewContext(context.Background(), o.Trace)
	l := p.Logger.With("service", o.Service, "entity", o.Entity)
	switch {
	case o.Fact != nil:
		l.DebugContext(ctx, "fact", "kind", string(o.Fact.Body.Type()), "number", o.Fact.Number)
	case o.Repaired != "":
		l.WarnContext(ctx, "a document was repaired", "reason", o.Repaired)
	case o.Refusal != nil:
		l.InfoContext(ctx, "refused", "code", string(errcode.Of(o.Refusal)), "reason", o.Refusal.Error())
	case o.Err != nil && !errors.Is(o.Err, context.Canceled):
		l.WarnContext(ctx, "trouble", "code", string(errcode.Of(o.Err)), "reason", o.Err.Error())
	}
	for _, s := range o.Spans {
		p.Recorder.Record(s)
	}
}

// Close exports the last spans and drains the connection.
func (p *Process) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := p.Meter.Close(ctx); err != nil {
		p.Logger.Warn("the last metrics were not exported", "reason", err.Error())
	}
	if err := p.Output.Close(ctx); err != nil {
		p.Logger.Warn("the last output was not exported", "reason", err.Error())
	}
	if err := p.Recorder.Close(ctx); err != nil {
		p.Logger.Warn("the last spans were not kept", "reason", err.Error())
	}
	p.Conn.Close()
}

// noticeAfter is how long a command waits before it says so.
const noticeAfter = time.Second

// Dial connects a command to c.Server and waits, at most c.Wait, until the server answers and its
// streams are usable: servers that have just started or lost a peer elect leaders first. say is
// called with the reason if the wait exceeds noticeAfter.
func Dial(ctx context.Context, c Config, say func(string)) (*Process, error) {
	until := time.Now().Add(c.Wait)
	stopNotice := wait.After(noticeAfter, func() { say(fmt.Sprintf("waiting up to %s for a NATS server at %s", c.Wait, c.Server)) })
	p, err := Open(ctx, c, NameClient, nil)
	stopNotice()
	if err != nil {
		return nil, err
	}
	limit, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	defer wait.After(noticeAfter, func() {
		say(fmt.Sprintf("waiting up to %s for the NATS servers at %s to elect a leader", c.Wait, c.Server))
	})()
	switch err := p.Conn.Ready(limit); {
	case err == nil:
		return p, nil
	case limit.Err() != nil && ctx.Err() == nil:
		p.Close()
		return nil, errcode.Errorf(errcode.Unavailable, "the NATS servers at %s have no leader after %s: do most of them run? More time: --timeout (%v)", c.Server, c.Wait, err)
	default:
		p.Close()
		return nil, err
	}
}

// Both runs a and b concurrently until one returns, cancels the context of the other, waits for it,
// and returns the first result. The end of ctx ends both.
func Both(ctx context.Context, a, b func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	for _, f := range []func(context.Context) error{a, b} {
		go func() { ended <- f(ctx) }()
	}
	first := <-ended
	cancel()
	<-ended
	return first
}
