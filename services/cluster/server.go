package cluster

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
)

// RunSource is the CloudEvents source of jobs of a `regroup run` with its own server. Such a job
// ends with its run, even if the run is killed.
const RunSource = "/client/run/local"

// Server is one server that a client uses. On a machine without a configured server there may be
// several: each run has its own.
type Server struct {
	Ports broker.Ports
	// Source is that of all commands, if the server takes them from no other. Empty = it does.
	Source string
	Own    bool            // owned by one run: it accepts no other jobs
	Idle   bool            // its services do not run: stored data can be read, but requests are not answered
	Serve  func() error    // runs the services of an idle server in this process, until the connection ends; nil = cannot
	Ended  context.Context //nolint:containedctx // ends with the process that runs it; nil = unknown
	Close  func()          // closes the connection; not called by the client
}

// Of returns a client of several servers, of which the first gets new jobs; source is as in New.
func Of(source string, servers ...Server) *Client {
	c := &Client{AnswerWithin: DefaultAnswerWithin, Now: time.Now, all: servers, source: cmp.Or(servers[0].Source, source)}
	c.at.Store(&servers[0])
	return c
}

// left corrects the view of a job: one whose run ended before the services recorded its end was
// ended by that.
func (s Server) left(v events.JobView) events.JobView {
	if s.Idle && !v.State.Terminal() && strings.HasPrefix(v.By, RunSource) {
		v.State, v.Reason = events.JobStateStopped, "its run was killed"
		v.EndWorkers(v.Reason)
	}
	return v
}

// answers returns an error if no service can execute a command; submit = the command creates a job.
func (s Server) answers(submit bool) error {
	switch {
	case s.Idle:
		return errcode.Errorf(errcode.Unavailable, "nothing runs here that could do that: start a server with regroup up, or name one with --server")
	case s.Own && submit:
		return errcode.Errorf(errcode.Unavailable, "the regroup run that is under way here takes no other jobs: start a server with regroup up, name one with --server, or use regroup run")
	}
	return nil
}

// serving returns a context that ends, with a reason, when the process that runs the server has
// ended.
func (s Server) serving(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if s.Ended == nil {
		return ctx, func() { cancel(nil) }
	}
	off := context.AfterFunc(s.Ended, func() { cancel(errEnded) })
	return ctx, func() {
		off()
		cancel(nil)
	}
}

var errEnded = errcode.Errorf(errcode.Unavailable, "the regroup that ran here has ended: what it has left is shown by regroup ls and regroup status")

// everywhere queries all servers concurrently. The results are in the order of the servers.
func everywhere[V any](ctx context.Context, c *Client, ask func(context.Context, *Client, Server) ([]V, error)) ([][]V, error) {
	got := make([][]V, len(c.all))
	g, ctx := errgroup.WithContext(ctx)
	for i := range c.all {
		g.Go(func() (err error) {
			got[i], err = ask(ctx, c, c.all[i])
			return err
		})
	}
	return got, g.Wait()
}

func jobsOf(ctx context.Context, c *Client, s Server) ([]events.JobView, error) {
	all, err := views(ctx, c, s, events.BucketJobs, Exists)
	for i, v := range all {
		all[i] = s.left(v)
	}
	return all, err
}

func nodesOf(ctx context.Context, c *Client, s Server) ([]events.NodeView, error) {
	if s.Idle && len(c.all) > 1 {
		return nil, nil // its node belongs to a run that has ended
	}
	return views(ctx, c, s, events.BucketNodes, func(v events.NodeView) bool { return v.Node != "" })
}

// views reads a bucket by key. Some documents have no view yet: there reports which do.
func views[V any](ctx context.Context, c *Client, s Server, bucket string, there func(V) bool) ([]V, error) {
	var all []V
	var broken map[string]error
	err := c.retry(ctx, func(ctx context.Context) error {
		r := document.Reader[V]{Bucket: s.Ports.Buckets.Bucket(bucket)}
		stored, err := r.Records(ctx)
		broken, all = r.Unreadable(), nil
		for _, r := range stored {
			if there(r.View) {
				c.show(&r.View)
				all = append(all, r.View)
			}
		}
		return err
	})
	for _, key := range slices.Sorted(maps.Keys(broken)) {
		if c.Warn != nil {
			c.Warn(errcode.Errorf(errcode.Of(broken[key]), "%s of %s is left out, its service makes it again: %w", key, bucket, broken[key]))
		}
	}
	return all, err
}
