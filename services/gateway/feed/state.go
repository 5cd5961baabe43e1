package feed

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/cluster"
)

// Change says which view has changed. It is the data of a live item.
type Change struct {
	Kind string `json:"kind"` // job, node, pool, facts, brokers or link
	ID   string `json:"id,omitempty"`
}

// watch copies a bucket into a table and tells of each change.
func watch[V any](ctx context.Context, g *errgroup.Group, f *Feed, bucket string, t *table[V], kind string) {
	t.mu.Lock()
	t.rows = map[string]row[V]{}
	t.mu.Unlock()
	g.Go(func() error {
		for {
			err := f.ports.Buckets.Bucket(bucket).Watch(ctx, func(key string, value []byte, revision uint64) {
				t.apply(f, bucket, key, value, revision)
				f.change(kind, key)
			}, func() {
				t.mu.Lock()
				t.done = true
				t.mu.Unlock()
				f.change(kind, "")
			})
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if f.warn(bucket, err); !wait.Sleep(ctx, retryPause) {
				return context.Cause(ctx)
			}
		}
	})
}

func (t *table[V]) apply(f *Feed, bucket, key string, value []byte, revision uint64) {
	if value == nil {
		t.mu.Lock()
		delete(t.rows, key)
		t.mu.Unlock()
		return
	}
	v, numbers, err := document.ViewUpTo[V](value)
	if err != nil {
		f.warn(bucket+"/"+key, err)
		return
	}
	t.mu.Lock()
	t.rows[key] = row[V]{v, revision, numbers}
	t.mu.Unlock()
}

func (f *Feed) change(kind, id string) {
	data, err := json.Marshal(Change{kind, id})
	if err != nil {
		return
	}
	i := Item{Kind: "change", Data: data}
	if kind == "job" {
		i.Job = ident.JobID(id)
	}
	f.Live.Add(i)
}

// Jobs returns every job, the newest first, with the newest progress.
func (f *Feed) Jobs() []events.JobView {
	all := cluster.NewestFirst(slices.DeleteFunc(f.jobs.all(), func(v events.JobView) bool { return !cluster.Exists(v) }))
	for i := range all {
		f.series.progressed(&all[i])
	}
	return all
}

// Job returns a job with the newest progress and the revision of its document; false if there is
// none.
func (f *Feed) Job(id ident.JobID) (events.JobView, uint64, bool) {
	v, revision, ok := f.jobs.get(string(id))
	if !ok || !cluster.Exists(v) {
		return events.JobView{}, 0, false
	}
	f.series.progressed(&v)
	return v, revision, true
}

// Shows reports whether the view of a job or a node contains what a fact about it says.
func (f *Feed) Shows(e events.Event) bool {
	family := e.Body.Type().Family()
	if _, removed := e.Body.(events.JobRemoved); removed {
		_, _, there := f.Job(ident.JobID(e.Entity))
		return !there
	}
	if family == events.FamilyNode {
		return f.nodes.shows(e.Entity, family, e.Number)
	}
	return f.jobs.shows(e.Entity, family, e.Number)
}

// Nodes returns every node by name.
func (f *Feed) Nodes() []events.NodeView {
	all := slices.DeleteFunc(f.nodes.all(), func(v events.NodeView) bool { return v.Node == "" })
	slices.SortFunc(all, func(a, b events.NodeView) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

// Node returns a node; false if there is none.
func (f *Feed) Node(id ident.NodeID) (events.NodeView, bool) {
	v, _, ok := f.nodes.get(string(id))
	return v, ok && v.Node != ""
}

// Round returns the rendezvous of a job; the zero value if there is none yet.
func (f *Feed) Round(id ident.JobID) events.RoundView {
	v, _, _ := f.rounds.get(string(id))
	return v
}

// Pool returns the scheduler's view; the zero value if there is none yet.
func (f *Feed) Pool() events.PoolView {
	v, _, _ := f.pools.get(events.PoolKey)
	return v
}

// Silent returns the services of which no replica answers, in the order of the control flow.
func (f *Feed) Silent(ctx context.Context) []string { return cluster.Silent(ctx, f.ports.Calls) }
