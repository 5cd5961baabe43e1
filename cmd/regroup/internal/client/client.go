// Package client is what a user's program says to Regroup and reads from it, over the ports alone:
// commands are published as CloudEvents and answered by facts, states are read from the judges'
// buckets, stories from the fact stream. It decides nothing and keeps nothing.
package client

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/regroup-io/regroup/cmd/regroup/internal/visible"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/spec"
)

// DefaultAnswerWithin is how long a command waits for the fact that answers it.
const DefaultAnswerWithin = 15 * time.Second

// Client speaks for one user. Its fields may be set before first use.
type Client struct {
	// AnswerWithin bounds the wait for the answer to a command. Too short: a busy registry is
	// reported as absent.
	AnswerWithin time.Duration
	// Waits is called with what is waited for once an answer takes longer than a moment; nil =
	// nothing is called. It may be called by several goroutines.
	Waits func(text string)
	// Now gives the time of commands.
	Now func() time.Time
	// Trace is the traceparent of what the user does: jobs that are submitted show their start
	// there as well. Empty = there is none.
	Trace string
	// Exact leaves texts from outside as they are, for programs. Else what a terminal would obey in
	// them is written out.
	Exact bool
	// Warn is called for what was skipped because it cannot be read; nil = nothing is called.
	Warn func(error)

	at     atomic.Pointer[Server] // spoken to: the first, then the one that has what was asked for last
	all    []Server
	source string
}

// New makes a client of one server; source is the CloudEvents source of its commands, e.g.
// /regroup/cli/ada@host.
func New(ports events.Ports, source string) *Client { return Of(source, Server{Ports: ports}) }

// Trace returns the traceparent that the program runs in, as tools hand it on: TRACEPARENT. One
// that cannot be read is none.
func Trace(getenv func(string) string) string { return events.OwnTrace(getenv("TRACEPARENT"), "") }

func newID() string { return ulid.Make().String() }

// Jobs returns every job, the newest first.
func (c *Client) Jobs(ctx context.Context) ([]events.JobView, error) {
	all, err := everywhere(ctx, c, jobsOf)
	jobs := found(all)
	slices.SortFunc(jobs, func(a, b events.JobView) int {
		return cmp.Or(b.Submitted.Compare(a.Submitted), cmp.Compare(a.Job, b.Job))
	})
	return jobs, err
}

// Job returns the job with this id or, if there is none, the only one whose id begins so. NotFound
// comes with the nearest id.
func (c *Client) Job(ctx context.Context, ref string) (events.JobView, error) {
	if events.JobID(ref).Check() == nil {
		for i := range c.all {
			v, err := loadAt[events.JobView](ctx, c, c.all[i], events.BucketJobs, ref)
			if err == nil && submitted(v) {
				c.at.Store(&c.all[i])
				return c.all[i].left(v), nil
			}
			if err != nil && events.CodeOf(err) != events.NotFound {
				return v, err
			}
		}
	}
	all, err := everywhere(ctx, c, jobsOf)
	if err != nil {
		return events.JobView{}, err
	}
	return pick(c, "job", ref, all, func(v events.JobView) string { return string(v.Job) })
}

// submitted tells whether there is such a job: the document may also only remember a stop whose
// submit has not come yet.
func submitted(v events.JobView) bool { return v.Job != "" && v.State != "" }

// Nodes returns every node that discovery knows, by name.
func (c *Client) Nodes(ctx context.Context) ([]events.NodeView, error) {
	all, err := everywhere(ctx, c, nodesOf)
	nodes := found(all)
	slices.SortStableFunc(nodes, func(a, b events.NodeView) int { return cmp.Compare(a.Node, b.Node) })
	return nodes, err
}

// Node returns the node with this name or, if there is none, the only one whose name begins so.
func (c *Client) Node(ctx context.Context, ref string) (events.NodeView, error) {
	all, err := everywhere(ctx, c, nodesOf)
	if err != nil {
		return events.NodeView{}, err
	}
	return pick(c, "node", ref, all, func(v events.NodeView) string { return string(v.Node) })
}

// Round returns the rendezvous' opinion of a job; an empty one if it has none yet.
func (c *Client) Round(ctx context.Context, job events.JobID) (events.RoundView, error) {
	v, err := load[events.RoundView](ctx, c, events.BucketRounds, string(job))
	if events.CodeOf(err) == events.NotFound {
		return events.RoundView{}, nil
	}
	return v, err
}

// Placement returns what the schedulers have given away, of all servers in one pool; an empty one
// if there is nothing yet.
func (c *Client) Placement(ctx context.Context) (events.PoolView, error) {
	var pool events.PoolView
	for i, s := range c.all {
		v, err := loadAt[events.PoolView](ctx, c, s, events.BucketPlacements, events.PoolKey)
		switch {
		case events.CodeOf(err) == events.NotFound:
		case err != nil:
			return events.PoolView{}, err
		case i == 0 || pool.Jobs == nil:
			pool = v
		default:
			maps.Copy(pool.Jobs, v.Jobs)
		}
	}
	return pool, nil
}

// load reads a document from the server that is spoken to.
func load[V any](ctx context.Context, c *Client, bucket, key string) (V, error) {
	return loadAt[V](ctx, c, *c.at.Load(), bucket, key)
}

func loadAt[V any](ctx context.Context, c *Client, s Server, bucket, key string) (V, error) {
	var v V
	err := c.insist(ctx, func(ctx context.Context) error {
		stored, _, err := s.Ports.Buckets.Bucket(bucket).Load(ctx, key)
		if err != nil {
			return err
		}
		v, err = document.View[V](stored)
		c.show(&v)
		return err
	})
	return v, err
}

// show makes what came from outside fit for a terminal.
func (c *Client) show(v any) {
	if !c.Exact {
		visible.All(v)
	}
}

// pick finds what a user's reference means: an exact name wins, then the only one with this
// beginning. The client speaks to the server that has it from then on.
func pick[V any](c *Client, what, ref string, all []of[V], name func(V) string) (V, error) {
	var none V
	var names, begin []string
	at := -1
	for i, o := range all {
		n := name(o.it)
		if n == ref {
			c.at.Store(o.at)
			return o.it, nil
		}
		names = append(names, n)
		if ref != "" && strings.HasPrefix(n, ref) {
			begin, at = append(begin, n), i
		}
	}
	switch {
	case len(begin) == 1:
		c.at.Store(all[at].at)
		return all[at].it, nil
	case len(begin) > 1:
		slices.Sort(begin)
		return none, events.Errorf(events.Invalid, "%q is the beginning of %d %ss: %s", ref, len(begin), what, strings.Join(begin, ", "))
	}
	slices.Sort(names)
	if hint := spec.DidYouMean(ref, names); hint != "" {
		return none, events.Errorf(events.NotFound, "there is no %s %q: %s", what, ref, hint)
	}
	return none, events.Errorf(events.NotFound, "there is no %s %q: see regroup %s", what, ref, map[string]string{"job": "ls", "node": "node ls"}[what])
}

// errStop ends a reading from within.
var errStop = errors.New("seen enough")

// Stop is returned by a callback to end its reading without error.
func Stop() error { return errStop }
