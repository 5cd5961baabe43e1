// Package cluster is the client of a cluster for processes that are connected to its brokers: the
// command line, and the gateway, which serves others over HTTP (package client at the top of the
// tree asks that). Commands are published as CloudEvents and answered by facts, states are read
// from the services' buckets, histories from the stream of facts. It decides nothing and stores
// nothing.
package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/internal/escape"
)

// DefaultAnswerWithin is the default timeout of a command's reply.
const DefaultAnswerWithin = 15 * time.Second

// Client acts for one user. Its fields may be set before first use.
type Client struct {
	// AnswerWithin bounds each request, reads included. If it is too short, a busy server is
	// reported as unavailable.
	AnswerWithin time.Duration
	// Waits, unless it is nil, is called with a description when a reply is slow. It may be called
	// concurrently.
	Waits func(text string)
	// Now gives the time of commands.
	Now func() time.Time
	// Trace is the traceparent of the user's own trace, to which the start of each submitted job
	// gets a link. Empty = none.
	Trace string
	// Exact leaves untrusted text unchanged, for programs. Otherwise terminal control sequences are
	// escaped.
	Exact bool
	// Chosen, unless it is nil, is called with the job that a reference is taken for, where it is
	// the beginning of several of which the others have ended.
	Chosen func(text string)
	// Warn, unless it is nil, is called for skipped messages that cannot be decoded.
	Warn func(error)

	at     atomic.Pointer[Server] // the server used for requests: at first all[0], later the one that has the job or node found last
	all    []Server               // one, or those of all runs of this user
	homes  sync.Map               // of ident.JobID: the *Server in all that has it
	source string
}

// New returns a client of one server; source is the CloudEvents source of its commands, e.g.
// /regroup/cli/ada@host.
func New(ports broker.Ports, source string) *Client { return Of(source, Server{Ports: ports}) }

// Owns reports whether the client has submitted a job: its source has, or the same submitter.
func (c *Client) Owns(v events.JobView) bool {
	own, restricted := events.SubmitterOf(c.source)
	by, ok := events.SubmitterOf(v.By)
	return v.By == c.source || (restricted && ok && by.Name == own.Name)
}

// MayChange reports whether the registry takes commands of the client about a job: those of a
// submitter must be about jobs that it has submitted.
func (c *Client) MayChange(v events.JobView) bool {
	_, restricted := events.SubmitterOf(c.source)
	return !restricted || c.Owns(v)
}

// Trace returns the traceparent in the environment variable TRACEPARENT; "" if there is none or it
// is malformed.
func Trace(getenv func(string) string) string { return tracing.Own(getenv("TRACEPARENT"), "") }

func newID() string { return ulid.Make().String() }

// Jobs returns every job, the newest first.
func (c *Client) Jobs(ctx context.Context) ([]events.JobView, error) {
	all, err := everywhere(ctx, c, jobsOf)
	c.remember(all)
	return NewestFirst(slices.Concat(all...)), err
}

// NewestFirst sorts jobs by the time of their submission, and returns them.
func NewestFirst(jobs []events.JobView) []events.JobView {
	slices.SortFunc(jobs, func(a, b events.JobView) int {
		return cmp.Or(b.Submitted.Compare(a.Submitted), cmp.Compare(a.Job, b.Job))
	})
	return jobs
}

// Job returns the job with this id or, if there is none, the only one with this prefix, or the only
// one of these that has not ended. NotFound names the nearest id.
func (c *Client) Job(ctx context.Context, ref string) (events.JobView, error) {
	if ident.JobID(ref).Check() == nil {
		for i := range c.all {
			v, err := loadAt[events.JobView](ctx, c, c.all[i], events.BucketJobs, ref)
			if err == nil && Exists(v) {
				c.at.Store(&c.all[i])
				c.homes.Store(v.Job, &c.all[i])
				return c.all[i].left(v), nil
			}
			if err != nil && errcode.Of(err) != errcode.NotFound {
				return v, err
			}
		}
	}
	all, err := everywhere(ctx, c, jobsOf)
	if err != nil {
		return events.JobView{}, err
	}
	c.remember(all)
	return pick(c, "job", ref, all, func(v events.JobView) string { return string(v.Job) }, func(v events.JobView) bool { return !v.State.Terminal() })
}

// Exists reports whether a job exists: a document without a state only records a stop that arrived
// before its submit.
func Exists(v events.JobView) bool { return v.Job != "" && v.State != "" }

// Nodes returns every node that discovery knows, by name.
func (c *Client) Nodes(ctx context.Context) ([]events.NodeView, error) {
	all, err := everywhere(ctx, c, nodesOf)
	nodes := slices.Concat(all...)
	slices.SortStableFunc(nodes, func(a, b events.NodeView) int { return cmp.Compare(a.Node, b.Node) })
	return nodes, err
}

// WorkerNodes returns the nodes that may get workers of the jobs that this client submits.
func (c *Client) WorkerNodes(ctx context.Context) ([]events.NodeView, error) {
	nodes, err := nodesOf(ctx, c, *c.at.Load())
	return slices.DeleteFunc(nodes, func(n events.NodeView) bool {
		alive := n.State == events.NodeStateReady || n.State == events.NodeStateSuspected
		return !alive || n.Slots == 0 || n.Excluded != ""
	}), err
}

// Node returns the node with this name or, if there is none, the only one with this prefix.
func (c *Client) Node(ctx context.Context, ref string) (events.NodeView, error) {
	all, err := everywhere(ctx, c, nodesOf)
	if err != nil {
		return events.NodeView{}, err
	}
	return pick(c, "node", ref, all, func(v events.NodeView) string { return string(v.Node) }, func(events.NodeView) bool { return false })
}

// Round returns the rendezvous' view of a job; the zero value if there is none yet.
func (c *Client) Round(ctx context.Context, job ident.JobID) (events.RoundView, error) {
	v, err := load[events.RoundView](ctx, c, events.BucketRounds, string(job))
	if errcode.Of(err) == errcode.NotFound {
		return events.RoundView{}, nil
	}
	return v, err
}

// Placement returns the slots that the schedulers of all servers have assigned, as one pool, which
// may be empty. The queue and the capacity are those of the first server.
func (c *Client) Placement(ctx context.Context) (events.PoolView, error) {
	var pool events.PoolView
	for _, s := range c.all {
		v, err := loadAt[events.PoolView](ctx, c, s, events.BucketPlacements, events.PoolKey)
		switch {
		case errcode.Of(err) == errcode.NotFound:
		case err != nil:
			return events.PoolView{}, err
		case pool.Jobs == nil:
			pool = v
		default:
			maps.Copy(pool.Jobs, v.Jobs)
		}
	}
	return pool, nil
}

// load reads a document from the server in use.
func load[V any](ctx context.Context, c *Client, bucket, key string) (V, error) {
	return loadAt[V](ctx, c, *c.at.Load(), bucket, key)
}

func loadAt[V any](ctx context.Context, c *Client, s Server, bucket, key string) (V, error) {
	var v V
	err := c.retry(ctx, func(ctx context.Context) error {
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

// show escapes untrusted text for a terminal.
func (c *Client) show(v any) {
	if !c.Exact {
		escape.All(v)
	}
}

// pick resolves a user's reference: an exact name first, then the only one with this prefix, then
// the only one of these that is preferred. From then on the client uses the server that has it.
func pick[V any](c *Client, what, ref string, all [][]V, name func(V) string, preferred func(V) bool) (V, error) {
	type found struct {
		v  V
		at *Server
	}
	var none V
	var names, begin []string
	var matches, better []found
	for i, of := range all {
		for _, v := range of {
			n := name(v)
			if n == ref {
				c.at.Store(&c.all[i])
				return v, nil
			}
			names = append(names, n)
			if ref != "" && strings.HasPrefix(n, ref) {
				begin, matches = append(begin, n), append(matches, found{v, &c.all[i]})
				if preferred(v) {
					better = append(better, matches[len(matches)-1])
				}
			}
		}
	}
	if len(matches) > 1 && len(better) == 1 {
		matches = better
		if c.Chosen != nil {
			c.Chosen(fmt.Sprintf("%s, the only one of %d that begin with %q and has not ended", name(better[0].v), len(begin), ref))
		}
	}
	switch {
	case len(matches) == 1:
		c.at.Store(matches[0].at)
		return matches[0].v, nil
	case len(matches) > 1:
		slices.Sort(begin)
		return none, errcode.Errorf(errcode.Invalid, "%q is the beginning of %d %ss: %s", ref, len(begin), what, strings.Join(begin, ", "))
	}
	if hint := DidYouMean(ref, names); hint != "" {
		return none, errcode.Errorf(errcode.NotFound, "there is no %s %q: %s", what, ref, hint)
	}
	return none, errcode.Errorf(errcode.NotFound, "there is no %s %q: see regroup %s", what, ref, map[string]string{"job": "ls", "node": "node ls"}[what])
}

// DidYouMean suggests one of these ids of jobs or nodes, by itself or, as most people write that of
// a job, without its last part; empty = none is near.
func DidYouMean(ref string, ids []string) string {
	known, of := slices.Sorted(slices.Values(ids)), map[string]string{}
	if spec.Nearest(ref, known) != "" {
		return spec.DidYouMean(ref, known)
	}
	for _, id := range known {
		if i := strings.LastIndexByte(id, '-'); i > 0 {
			of[id[:i]] = id
		}
	}
	if near := spec.Nearest(ref, slices.Sorted(maps.Keys(of))); near != "" {
		return spec.DidYouMean(of[near], []string{of[near]})
	}
	return ""
}
