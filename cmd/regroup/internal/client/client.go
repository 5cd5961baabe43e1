// Package client is what a user's program says to Regroup and reads from it, over the ports alone: commands are
// published as CloudEvents and answered by facts, states are read from the judges' buckets, stories from the fact stream.
// It decides nothing and keeps nothing.
package client

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/regroup-io/regroup/cmd/regroup/internal/visible"
	"github.com/regroup-io/regroup/events"
)

// DefaultAnswerWithin is how long a command waits for the fact that answers it.
const DefaultAnswerWithin = 15 * time.Second

// Client speaks for one user. Its fields may be set before first use.
type Client struct {
	// AnswerWithin bounds the wait for the answer to a command. Too short: a busy registry is reported as absent.
	AnswerWithin time.Duration
	// Now gives the time of commands.
	Now func() time.Time
	// Trace is the traceparent of what the user does: jobs that are submitted show their start there as well. Empty = there is none.
	Trace string
	// Exact leaves texts from outside as they are, for programs. Else what a terminal would obey in them is written out.
	Exact bool
	// Warn is told of what was passed over because it cannot be read; nil = nobody is.
	Warn func(error)

	ports  events.Ports
	source string
}

// New makes a client; source is the CloudEvents source of its commands, e.g. /regroup/cli/ada@host.
func New(ports events.Ports, source string) *Client {
	return &Client{AnswerWithin: DefaultAnswerWithin, Now: time.Now, ports: ports, source: source}
}

// Trace returns the traceparent that the program runs in, as tools hand it on: TRACEPARENT. One that cannot be read is none.
func Trace(getenv func(string) string) string { return events.OwnTrace(getenv("TRACEPARENT"), "") }

func newID() string { return ulid.Make().String() }

// Jobs returns every job, the newest first.
func (c *Client) Jobs(ctx context.Context) ([]events.JobView, error) {
	all, err := views(ctx, c, events.BucketJobs, submitted)
	slices.SortFunc(all, func(a, b events.JobView) int {
		return cmp.Or(b.Submitted.Compare(a.Submitted), cmp.Compare(a.Job, b.Job))
	})
	return all, err
}

// Job returns the job with this id or, if there is none, the only one whose id begins so. NotFound comes with the nearest id.
func (c *Client) Job(ctx context.Context, ref string) (events.JobView, error) {
	if events.JobID(ref).Check() == nil {
		v, err := load[events.JobView](ctx, c, events.BucketJobs, ref)
		if err == nil && submitted(v) {
			return v, nil
		}
		if err != nil && events.CodeOf(err) != events.NotFound {
			return v, err
		}
	}
	all, err := c.Jobs(ctx)
	if err != nil {
		return events.JobView{}, err
	}
	return pick("job", ref, all, func(v events.JobView) string { return string(v.Job) })
}

// submitted tells whether there is such a job: the document may also only remember a stop whose submit has not come yet.
func submitted(v events.JobView) bool { return v.Job != "" && v.State != "" }

// Nodes returns every node that discovery knows, by name.
func (c *Client) Nodes(ctx context.Context) ([]events.NodeView, error) {
	return views(ctx, c, events.BucketNodes, func(v events.NodeView) bool { return v.Node != "" })
}

// Node returns the node with this name or, if there is none, the only one whose name begins so.
func (c *Client) Node(ctx context.Context, ref string) (events.NodeView, error) {
	all, err := c.Nodes(ctx)
	if err != nil {
		return events.NodeView{}, err
	}
	return pick("node", ref, all, func(v events.NodeView) string { return string(v.Node) })
}

// Round returns the rendezvous' opinion of a job; an empty one if it has none yet.
func (c *Client) Round(ctx context.Context, job events.JobID) (events.RoundView, error) {
	v, err := load[events.RoundView](ctx, c, events.BucketRounds, string(job))
	if events.CodeOf(err) == events.NotFound {
		return events.RoundView{}, nil
	}
	return v, err
}

// Placement returns the scheduler's pool; an empty one if it has written none yet.
func (c *Client) Placement(ctx context.Context) (events.PoolView, error) {
	v, err := load[events.PoolView](ctx, c, events.BucketPlacements, events.PoolKey)
	if events.CodeOf(err) == events.NotFound {
		return events.PoolView{}, nil
	}
	return v, err
}

// views reads a bucket by key. Not every document has a view yet: there says which do.
func views[V any](ctx context.Context, c *Client, bucket string, there func(V) bool) ([]V, error) {
	var all []V
	stored, err := events.Records[V](ctx, c.ports.Buckets.Bucket(bucket))
	for _, r := range stored {
		if there(r.View) {
			c.show(&r.View)
			all = append(all, r.View)
		}
	}
	return all, err
}

func load[V any](ctx context.Context, c *Client, bucket, key string) (V, error) {
	var none V
	stored, _, err := c.ports.Buckets.Bucket(bucket).Load(ctx, key)
	if err != nil {
		return none, err
	}
	v, err := events.DecodeView[V](stored)
	c.show(&v)
	return v, err
}

// show makes what came from outside fit for a terminal.
func (c *Client) show(v any) {
	if !c.Exact {
		visible.All(v)
	}
}

// pick finds what a user's reference means: an exact name wins, then the only one with this beginning.
func pick[V any](what, ref string, all []V, name func(V) string) (V, error) {
	var none V
	var names, begin []string
	at := -1
	for i, v := range all {
		n := name(v)
		if n == ref {
			return v, nil
		}
		names = append(names, n)
		if ref != "" && strings.HasPrefix(n, ref) {
			begin, at = append(begin, n), i
		}
	}
	switch {
	case len(begin) == 1:
		return all[at], nil
	case len(begin) > 1:
		slices.Sort(begin)
		return none, events.Errorf(events.Invalid, "%q is the beginning of %d %ss: %s", ref, len(begin), what, strings.Join(begin, ", "))
	}
	slices.Sort(names)
	if hint := events.DidYouMean(ref, names); hint != "" {
		return none, events.Errorf(events.NotFound, "there is no %s %q: %s", what, ref, hint)
	}
	return none, events.Errorf(events.NotFound, "there is no %s %q: see regroup %s", what, ref, map[string]string{"job": "ls", "node": "node ls"}[what])
}

// errStop ends a reading from within.
var errStop = errors.New("seen enough")

// Stop is returned by a callback to end its reading without error.
func Stop() error { return errStop }
