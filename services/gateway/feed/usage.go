package feed

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/usage"
)

// usageNodes bounds the nodes whose usage is kept: those that were heard last stay.
const usageNodes = 1 << 14

// NodeUsage is what a node said last of what it uses.
type NodeUsage struct {
	usage.Node
	At time.Time // when it was heard
}

// usages are what nodes use.
type usages struct {
	mu    sync.Mutex
	nodes map[ident.NodeID]NodeUsage
}

// hearUsage reads what all nodes use.
func (f *Feed) hearUsage(ctx context.Context) error {
	return f.ports.Signals.Hear(ctx, usage.All, "", func(_ string, data []byte) {
		if u, err := bodies.Decode[usage.Node](data); err == nil { // a malformed signal counts as lost
			f.usages.take(u, time.Now())
		}
	}, nil)
}

func (s *usages) take(u usage.Node, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.nodes[u.Node]; !known && len(s.nodes) >= usageNodes {
		delete(s.nodes, slices.MinFunc(slices.Collect(maps.Keys(s.nodes)), func(a, b ident.NodeID) int { return s.nodes[a].At.Compare(s.nodes[b].At) }))
	}
	s.nodes[u.Node] = NodeUsage{u, now}
}

// Usage returns what a node said last of what it uses; false if nothing was heard of it.
func (f *Feed) Usage(node ident.NodeID) (NodeUsage, bool) {
	f.usages.mu.Lock()
	defer f.usages.mu.Unlock()
	u, ok := f.usages.nodes[node]
	return u, ok
}

// RankPace is how fast a worker trains, as it was heard last.
type RankPace struct {
	At   time.Time // when it was heard
	Step uint64    // 0 = it has reported none in this generation
	// StepSeconds is how long a step has taken it of late; 0 = unknown.
	StepSeconds float64
	Waited      *float64 // see events.Progress

	fromStep uint64    // the step
	from     time.Time // and the time from which StepSeconds counts
}

// paceOver is over how long a step's time is averaged, at least.
const paceOver = 2 * time.Second

// pace applies a signal to what is known of the ranks of its generation.
func (j *jobSeries) pace(p events.Progress, now time.Time) {
	if p.Generation < j.pacedIn {
		return
	}
	if p.Generation > j.pacedIn || j.paces == nil {
		j.pacedIn, j.paces = p.Generation, map[ident.Place]RankPace{}
	}
	r := j.paces[p.Place]
	r.At, r.Waited = now, p.Waited
	switch {
	case p.Step == 0:
	case r.fromStep == 0 || p.Step < r.Step:
		r.fromStep, r.from, r.StepSeconds = p.Step, now, 0
	case p.Step > r.fromStep && now.Sub(r.from) >= paceOver:
		r.StepSeconds = now.Sub(r.from).Seconds() / float64(p.Step-r.fromStep)
		r.fromStep, r.from = p.Step, now
	}
	r.Step = p.Step
	j.paces[p.Place] = r
}

// Paces returns how fast the workers of a generation of a job train, by place.
func (f *Feed) Paces(id ident.JobID, g ident.Generation) map[ident.Place]RankPace {
	f.series.mu.Lock()
	defer f.series.mu.Unlock()
	if j := f.series.jobs[id]; j != nil && j.pacedIn == g {
		return maps.Clone(j.paces)
	}
	return nil
}
