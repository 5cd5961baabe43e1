package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/jetstream"
)

// Client is a client of a cluster.
type Client struct {
	Conn  *jetstream.Conn
	Ports broker.Ports
	name  string
	sent  atomic.Uint64
}

// Connect connects to brokers. Connection errors are written to log, which may be nil.
func Connect(ctx context.Context, o jetstream.ConnectOptions, log io.Writer) (*Client, error) {
	if log != nil {
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
	}
	conn, err := jetstream.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Client{Conn: conn, Ports: conn.Ports(), name: o.Name}, nil
}

// Close ends the connection.
func (c *Client) Close() { c.Conn.Close() }

// Submit publishes a job, retries while the brokers cannot store it, waits until it is accepted,
// and returns its id.
func (c *Client) Submit(ctx context.Context, spec spec.Job) (ident.JobID, error) {
	event, err := c.Publish(ctx, spec)
	if err != nil {
		return "", err
	}
	return c.Accepted(ctx, spec.Name, event)
}

// Publish publishes a job, and returns the id of the event.
func (c *Client) Publish(ctx context.Context, spec spec.Job) (string, error) {
	e := c.event(events.JobSubmit{Spec: spec})
	e.Entity = string(ident.JobIDFrom(spec.Name, e.Source, e.ID))
	return e.ID, c.publish(ctx, e)
}

// Accepted waits for the job of an event of this client. Which one of several ids it has depends on
// what other jobs there are.
func (c *Client) Accepted(ctx context.Context, name, event string) (job ident.JobID, err error) {
	source := c.source()
	return job, Until(ctx, func() (bool, error) {
		for _, id := range ident.JobIDs(name, source, event) {
			v, err := c.Job(ctx, id)
			if err == nil && v.SubmittedBy(source, event) {
				job = id
				return true, nil
			}
			if err != nil && errcode.Of(err) != errcode.NotFound {
				return false, err
			}
		}
		return false, fmt.Errorf("no job of the name %s is on record for the event %s", name, event)
	})
}

func (c *Client) source() string { return "/client/" + c.name }

// Stop ends a job without grace.
func (c *Client) Stop(ctx context.Context, job ident.JobID) error {
	e := c.event(events.JobStop{Job: job, Now: true})
	e.Entity = string(job)
	return c.publish(ctx, e)
}

func (c *Client) event(b events.Body) events.Event {
	return events.Event{ID: fmt.Sprintf("%d-%d", time.Now().UnixNano(), c.sent.Add(1)), Source: c.source(), Time: time.Now(), Body: b}
}

func (c *Client) publish(ctx context.Context, e events.Event) error {
	m, err := cloudevent.Encode(e)
	if err != nil {
		return err
	}
	return Until(ctx, func() (bool, error) {
		_, err := c.Ports.Log.Publish(ctx, m)
		return err == nil, err
	})
}

// Job reads the registry's view.
func (c *Client) Job(ctx context.Context, id ident.JobID) (events.JobView, error) {
	return View[events.JobView](ctx, c, events.BucketJobs, string(id))
}

// View reads a service's view of an entity.
func View[V any](ctx context.Context, c *Client, bucket, key string) (V, error) {
	var none V
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	b, _, err := c.Ports.Buckets.Bucket(bucket).Load(ctx, key)
	if err != nil {
		return none, err
	}
	return document.View[V](b)
}

// Until polls a condition of other processes until it holds or ctx ends; then the error is the last
// reason.
func Until(ctx context.Context, ok func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var why error // the error of the last complete attempt
	for {
		good, err := ok()
		if good {
			return nil
		}
		if ctx.Err() == nil || why == nil {
			why = err
		}
		select {
		case <-ctx.Done():
			return errors.Join(why, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// Arrival is a fact with its local arrival time.
type Arrival struct {
	At    time.Time
	Event events.Event
}

// Enough ends a Watch.
var Enough = errors.New("enough") //nolint:errname,staticcheck // not an error

// Watch calls fn with every fact on the subjects until fn returns Enough. ready (may be nil) is
// called once all stored facts were read, or skipped if the watch starts with new ones.
func (c *Client) Watch(ctx context.Context, start broker.Start, subjects []string, ready func() error, fn func(Arrival) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := c.Ports.Log.Follow(ctx, broker.Follow{Stream: events.StreamFacts, Start: start, Subjects: subjects}, func(m broker.Stored) error {
		at := time.Now()
		e, err := cloudevent.Decode(m.Header, m.Data)
		if err != nil {
			return fmt.Errorf("stored fact %d: %w", m.Sequence, err)
		}
		return fn(Arrival{At: at, Event: e})
	}, func() {
		if ready == nil {
			return
		}
		if err := ready(); err != nil {
			cancel(err)
		}
	})
	switch {
	case errors.Is(err, Enough) || errors.Is(context.Cause(ctx), Enough):
		return nil
	case err == nil || errors.Is(err, context.Canceled):
		return context.Cause(ctx)
	}
	return err
}
