package feed

import (
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/usage"
)

func TestPaceOfARank(t *testing.T) {
	j, now := &jobSeries{}, time.Now()
	place, share := ident.Place{Node: "node-a"}, 0.25
	hear := func(after time.Duration, g ident.Generation, step uint64) RankPace {
		now = now.Add(after)
		j.pace(events.Progress{Place: place, Generation: g, Step: step, Waited: &share}, now)
		return j.paces[place]
	}
	hear(0, 1, 0)
	hear(time.Second, 1, 10)
	if r := hear(time.Second, 1, 15); r.StepSeconds != 0 || r.Step != 15 {
		t.Errorf("after a second: %+v", r)
	}
	if r := hear(time.Second, 1, 20); r.StepSeconds != 0.2 || *r.Waited != share || r.At != now {
		t.Errorf("ten steps in two seconds: %+v", r)
	}
	if r := hear(8*time.Second, 1, 20); r.StepSeconds != 0.2 {
		t.Errorf("no step since: %+v", r)
	}
	if r := hear(2*time.Second, 1, 22); r.StepSeconds != 5 {
		t.Errorf("two steps in ten seconds: %+v", r)
	}
	if r := hear(time.Second, 2, 18); r.StepSeconds != 0 || r.Step != 18 {
		t.Errorf("another generation, which had to go back: %+v", r)
	}
	if r := hear(time.Minute, 1, 40); r.Step != 18 {
		t.Errorf("a signal of the generation before counts: %+v", r)
	}
}

func TestUsageIsBounded(t *testing.T) {
	s := usages{nodes: map[ident.NodeID]NodeUsage{}}
	now := time.Now()
	name := func(i int) ident.NodeID { return ident.NodeID(time.Duration(i).String()) }
	for i := range usageNodes + 2 {
		s.take(usage.Node{Node: name(i), Processors: i}, now.Add(time.Duration(i)))
	}
	if _, first := s.nodes[name(0)]; first || len(s.nodes) != usageNodes || s.nodes[name(usageNodes+1)].Processors != usageNodes+1 {
		t.Errorf("%d nodes are kept, the oldest too: %v", len(s.nodes), first)
	}
}
