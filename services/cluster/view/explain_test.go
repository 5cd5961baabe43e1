package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/golden"
)

var now = time.Date(2026, 11, 21, 10, 32, 0, 0, time.UTC)

func places(n int) []ident.Place {
	out := make([]ident.Place, n)
	for i := range out {
		out[i] = ident.Place{Node: ident.NodeID(fmt.Sprintf("node-%c", 'a'+i/2)), Slot: ident.Slot(i % 2)}
	}
	return out
}

func members(n int) []tables.Member {
	out := make([]tables.Member, n)
	for i, p := range places(n) {
		out[i] = tables.Member{Place: p, Rank: ident.Rank(i)}
	}
	return out
}

// job is one with 2 to 4 workers, submitted 90 s ago.
func job(state events.JobState) events.JobView {
	spec := spec.Job{Name: "mnist", Workers: spec.Workers{Min: 2, Max: 4}}.WithDefaults()
	v := events.JobView{Job: "mnist-7f3a", State: state, Spec: spec, Submitted: now.Add(-90 * time.Second)}
	for i, p := range places(4) {
		v.Workers = append(v.Workers, tables.WorkerView{WorkerRef: tables.WorkerRef{Place: p, Attempt: 1}, Rank: ident.Rank(i), State: tables.WorkerStateReady})
	}
	return v
}

// TestSentences covers all situations in which a user asks why.
func TestSentences(t *testing.T) {
	dead := places(4)[3]
	cause := events.Cause{Kind: events.CauseWorkerFailed, Place: &dead, Node: dead.Node, Rank: 3, Detail: "killed by signal 9 (SIGKILL)"}
	running := func(change func(*Seen)) Seen {
		s := Seen{
			Job:       job(events.JobStateRunning),
			Round:     events.RoundView{State: events.RoundStateSealed, Generation: 3, Members: members(4)},
			Placement: events.PlacementView{Places: places(4), Workers: spec.Workers{Min: 2, Max: 4}},
		}
		s.Job.Generation, s.Job.Step = 3, 4612
		change(&s)
		return s
	}
	fresh := func(change func(*Seen)) Seen {
		s := Seen{Job: job(events.JobStateWaiting)}
		s.Job.Workers = nil
		change(&s)
		return s
	}
	type situation struct {
		name string
		seen Seen
	}
	cases := []situation{
		{"nobody has looked yet", fresh(func(*Seen) {})},
		{"no room", fresh(func(s *Seen) {
			s.Placement.Waiting = "needs 2 slots, 1 free of 2 on 1 node; node-b is draining"
		})},
		{"in the queue", fresh(func(s *Seen) {
			s.Placement = events.PlacementView{Workers: spec.Workers{Min: 2, Max: 4}, Waiting: "needs 2 slots, is queued"}
			s.Pool = events.PoolView{
				Jobs:  map[ident.JobID]events.PlacementView{"gpt-0001": {Workers: spec.Workers{Min: 8, Max: 8}}, "mnist-7f3a": s.Placement},
				Queue: []ident.JobID{"gpt-0001", "bert-0002", "mnist-7f3a"}, Head: "gpt-0001", Capacity: "3 free of 8 on 2 nodes", MaxSlots: 8,
			}
		})},
		{"in the queue for GPUs", fresh(func(s *Seen) {
			s.Job.Spec.GPU = &spec.GPU{Model: "H100"}
			s.Placement = events.PlacementView{Workers: spec.Workers{Min: 2, Max: 4}, Waiting: "needs 2 slots with a GPU of model H100, is queued"}
			s.Pool = events.PoolView{
				Jobs:  map[ident.JobID]events.PlacementView{"gpt-0001": {Workers: spec.Workers{Min: 8, Max: 8}}, "mnist-7f3a": s.Placement},
				Queue: []ident.JobID{"gpt-0001", "bert-0002", "mnist-7f3a"}, Head: "bert-0002", Capacity: "3 free of 8 on 2 nodes", MaxSlots: 8,
				GPUQueues: []events.GPUQueue{{GPU: spec.GPU{Model: "H100"}, Head: "gpt-0001", Capacity: "1 free of 4 on 1 node", MaxSlots: 4}},
			}
		})},
		{"in the queue for GPUs, and too big", fresh(func(s *Seen) {
			s.Job.Spec.GPU = &spec.GPU{Memory: "80GB"}
			s.Placement = events.PlacementView{Workers: spec.Workers{Min: 2, Max: 4}, Waiting: "needs 2 slots with a GPU of at least 80GB, is queued"}
			s.Pool = events.PoolView{
				Queue: []ident.JobID{"gpt-0001", "mnist-7f3a"}, Capacity: "0 free of 8 on 1 node", MaxSlots: 8,
				GPUQueues: []events.GPUQueue{{GPU: spec.GPU{Memory: "80GB"}, Capacity: "0 free of 1 on 1 node", MaxSlots: 1}},
			}
		})},
		{"in the queue for GPUs of which nothing is said", fresh(func(s *Seen) {
			s.Job.Spec.GPU = &spec.GPU{Model: "L4"}
			s.Placement = events.PlacementView{Workers: spec.Workers{Min: 2, Max: 4}, Waiting: "needs 2 slots with a GPU of model L4, is queued"}
			s.Pool = events.PoolView{Queue: []ident.JobID{"gpt-0001", "mnist-7f3a"}, Capacity: "3 free of 8 on 2 nodes", MaxSlots: 8}
		})},
		{"for GPUs, and nobody has looked yet", fresh(func(s *Seen) { s.Job.Spec.GPU = &spec.GPU{} })},
		{"in the queue, and too big", fresh(func(s *Seen) {
			s.Placement = events.PlacementView{Workers: spec.Workers{Min: 2, Max: 4}, Waiting: "needs 2 slots, is queued"}
			s.Pool = events.PoolView{Queue: []ident.JobID{"gpt-0001", "mnist-7f3a"}, Head: "gpt-0001", Capacity: "0 free of 1 on 1 node", MaxSlots: 1}
		})},
		{"placed, no round yet", fresh(func(s *Seen) { s.Placement.Places = places(4) })},
		{"workers are starting", fresh(func(s *Seen) {
			s.Placement.Places = places(4)
			s.Round = events.RoundView{State: events.RoundStateOpen, Proposed: 1, Joined: places(1), Expected: places(4)}
			s.Job.Workers = job("").Workers[:2]
			s.Job.Workers[1].State = tables.WorkerStateStarting
		})},
		{"all is well", running(func(*Seen) {})},
		{"more than are wanted", running(func(s *Seen) { s.Job.Spec.Workers = spec.Workers{Min: 3, Max: 3} })},
		{"one of one", running(func(s *Seen) { s.Job.Spec.Workers, s.Round.Members = spec.Workers{Min: 1, Max: 1}, members(1) })},
		{"its last step is old", running(func(s *Seen) { s.Job.StepAt = now.Add(-4 * time.Minute) })},
		{"nobody had observed it", running(func(s *Seen) {
			s.Job.StepAt = now.Add(-80 * time.Millisecond)
			s.Job.Incidents = []events.IncidentClosed{
				{Incident: 1, From: 1, To: 2, Cause: cause, SilenceMS: 12000},
				{Incident: 2, From: 2, To: 3, Cause: events.Cause{Kind: events.CauseNodeLost, Node: "node-b", Rank: -1}, SilenceMS: 9800},
			}
		})},
		{"nobody knows since when", running(func(s *Seen) {
			s.Job.Step = 0
			s.Job.Incidents = []events.IncidentClosed{{Incident: 1, From: 1, To: 3, Cause: cause, SilenceUnknown: true}}
		})},
		{"regroups after a silence", running(func(s *Seen) {
			s.Round.State, s.Round.Proposed, s.Round.Cause = events.RoundStateOpen, 4, cause
			s.Round.Expected, s.Round.Joined, s.Job.StepAt = places(3), places(1), now.Add(-12*time.Second)
		})},
		{"started again, and no step yet", running(func(s *Seen) { s.Job.OpenIncident = &events.IncidentOpened{Incident: 1, From: 2, Cause: cause} })},
		{"no step was ever reported", running(func(s *Seen) { s.Job.Step = 0 })},
		{"trains, but always in vain", running(func(s *Seen) { s.Round.NoProgress = 4 })},
		{"backs off", running(func(s *Seen) {
			s.Round.State, s.Round.Proposed, s.Round.Cause, s.Round.NoProgress = events.RoundStateSettling, 4, cause, 4
			s.Round.Expected, s.Round.Joined, s.Round.Until = places(3), places(3), now.Add(4*time.Second)
		})},
		{"waits for the end of processes", running(func(s *Seen) {
			s.Round.State, s.Round.Proposed, s.Round.Cause = events.RoundStateSettling, 4, cause
			s.Round.Expected, s.Round.Joined, s.Round.Until = places(3), places(3), now.Add(1500*time.Millisecond)
			s.Round.EndingNodes = []ident.NodeID{"node-b", "node-c"}
		})},
		{"regroups", running(func(s *Seen) {
			s.Round.State, s.Round.Proposed, s.Round.Cause = events.RoundStateOpen, 4, cause
			s.Round.Expected, s.Round.Joined = places(3), places(1)
		})},
		{"last call", running(func(s *Seen) {
			s.Round.State, s.Round.Proposed, s.Round.Cause = events.RoundStateSettling, 4, cause
			s.Round.Expected, s.Round.Joined, s.Round.Until = places(4), places(3), now.Add(12*time.Second)
			s.Job.Workers[3].State, s.Job.Workers[3].Attempt = tables.WorkerStateStarting, 2
			s.Job.Failures = []time.Time{now}
		})},
		{"a newcomer warms up", running(func(s *Seen) {
			s.Round.Members = members(3)
			s.Job.Workers[3].State, s.Job.Workers[3].Attempt = tables.WorkerStateStarting, 2
		})},
		{"what is beyond a multiple", running(func(s *Seen) {
			s.Job.Spec.Elastic.MultipleOf = 2
			s.Round.Members, s.Placement.Places = members(2), places(3)
			s.Placement.Waiting = "has 3 of up to 4 workers, and trains with a multiple of 2: 0 free of 3 on 2 nodes"
		})},
		{"several are beyond a multiple", running(func(s *Seen) {
			s.Job.Spec.Elastic.MultipleOf = 3
			s.Round.Members, s.Placement.Places = members(3), places(5)
		})},
		{"newcomers make a multiple", running(func(s *Seen) {
			s.Job.Spec.Elastic.MultipleOf = 2
			s.Round.Members = members(2)
		})},
		{"some newcomers make a multiple", running(func(s *Seen) {
			s.Job.Spec.Elastic.MultipleOf = 2
			s.Round.Members, s.Placement.Places = members(2), places(5)
		})},
		{"a spare takes a place that a member gives up", running(func(s *Seen) {
			s.Job.Spec.Elastic.MultipleOf = 2
			s.Round.Members, s.Placement.Places = members(2), places(3)[1:]
		})},
		{"a cut link", running(func(s *Seen) {
			s.Round.Members = members(2)
			s.Round.LinkPartitions = []events.LinkPartition{{Nodes: [2]ident.NodeID{"node-a", "node-b"}, Excluded: "node-b", Until: now.Add(8 * time.Second)}}
		})},
		{"a cut link below min", running(func(s *Seen) {
			s.Round.LinkPartitions = []events.LinkPartition{{Nodes: [2]ident.NodeID{"node-a", "node-b"}, Until: now.Add(8 * time.Second)}}
		})},
		{"less than wanted", running(func(s *Seen) {
			s.Round.Members, s.Placement.Places = members(2), places(2)
			s.Placement.Waiting = "has 2 of up to 4 workers: 0 free of 2 on 1 node; node-b is suspected"
			s.Nodes = []events.NodeView{{Node: "node-a", State: events.NodeStateSuspected, Since: now.Add(-2 * time.Second), Reason: "silent for 2s"}}
		})},
		{"a node drains", running(func(s *Seen) {
			s.Nodes = []events.NodeView{
				{Node: "node-b", State: events.NodeStateReady, Draining: true, Since: now.Add(-time.Minute), Reason: "new disk"},
				{Node: "node-z", State: events.NodeStateLost, Since: now},
			}
		})},
		{"finishing", running(func(s *Seen) {
			s.Job.State = events.JobStateFinishing
			s.Job.Workers[0].State, s.Job.Workers[1].State = tables.WorkerStateDone, tables.WorkerStateSucceeded
		})},
		{"stopping", running(func(s *Seen) {
			s.Job.State, s.Job.Reason = events.JobStateStopping, "stopped by ada"
			s.Job.Workers[0].State = tables.WorkerStateStopped
		})},
		{"failed", running(func(s *Seen) {
			s.Job.State, s.Job.Ended, s.Job.Reason = events.JobStateFailed, now.Add(-time.Hour), "21 failures within 1h0m0s, 20 are allowed"
			s.Job.FirstError = &tables.WorkerView{WorkerRef: tables.WorkerRef{Place: dead}, Detail: "exit code 1"}
		})},
		{"succeeded", running(func(s *Seen) {
			s.Job.State, s.Job.Ended = events.JobStateSucceeded, now.Add(-3*time.Second)
		})},
	}
	none := events.ServiceNames()
	cases = append(cases, []situation{
		{"no scheduler, and new", fresh(func(s *Seen) { s.Silent = []string{events.ServiceScheduler} })},
		{"no scheduler, and it had said why", fresh(func(s *Seen) {
			s.Silent, s.Placement.Waiting = []string{events.ServiceScheduler}, "needs 2 slots, 0 free of 2 on 1 node"
		})},
		{"no scheduler, and it trains", running(func(s *Seen) { s.Silent = []string{events.ServiceScheduler} })},
		{"no rendezvous, and placed", fresh(func(s *Seen) { s.Silent, s.Placement.Places = []string{events.ServiceRendezvous}, places(4) })},
		{"no rendezvous, and it regroups", running(func(s *Seen) {
			s.Round.State, s.Round.Proposed, s.Round.Cause = events.RoundStateOpen, 4, cause
			s.Round.Expected, s.Round.Joined, s.Silent = places(3), places(1), []string{events.ServiceRendezvous}
		})},
		{"no registry, no discovery", running(func(s *Seen) { s.Silent = []string{events.ServiceDiscovery, events.ServiceRegistry} })},
		{"nobody answers", fresh(func(s *Seen) { s.Silent = none })},
		{"nobody answers on this machine", fresh(func(s *Seen) { s.Silent, s.ServerEnded = none, true })},
		{"all of its nodes drain", running(func(s *Seen) {
			s.Round.State, s.Round.Proposed, s.Round.Joined = events.RoundStateOpen, 4, places(2)
			s.Round.Cause = events.Cause{Kind: events.CauseShrink, Place: &dead, Rank: -1, Detail: "node-b is draining"}
			s.Placement = events.PlacementView{Workers: s.Placement.Workers, Waiting: "has 0 of at least 2 workers: no node takes work; node-a is draining; node-b is draining"}
			s.Nodes = []events.NodeView{{Node: "node-a", State: events.NodeStateReady, Draining: true, Since: now.Add(-time.Minute), Reason: "draining"}}
		})},
		{"the host list is empty", running(func(s *Seen) {
			s.Round.State, s.Round.Proposed = events.RoundStateOpen, 4
			s.Round.Cause = events.Cause{Kind: events.CauseShrink, Place: &dead, Rank: -1, Detail: "node-b may not be used: the host discovery script names no host"}
			s.Placement = events.PlacementView{Workers: s.Placement.Workers, Waiting: "has 0 of at least 2 workers: no node takes work; node-a and node-b may not be used: the host discovery script names no host"}
			s.Nodes = []events.NodeView{{Node: "node-a", State: events.NodeStateReady, Excluded: "the host discovery script names no host", Since: now}}
		})},
		{"a node is taken from the host list", running(func(s *Seen) {
			s.Nodes = []events.NodeView{{Node: "node-a", State: events.NodeStateReady, Excluded: "the host discovery script does not name it", Since: now, Reason: "came"}}
		})},
	}...)
	var b strings.Builder
	for _, c := range cases {
		c.seen.Now = now
		fmt.Fprintf(&b, "# %s\n%s\n", c.name, Explain(c.seen).Sentence)
	}
	golden.Compare(t, "testdata/sentences.txt", b.String())
}

// TestMany checks that a long list of missing slots is truncated.
func TestMany(t *testing.T) {
	s := Seen{Job: job(events.JobStateWaiting), Now: now, Round: events.RoundView{Proposed: 1, Expected: places(20)}}
	s.Placement.Places = places(20)
	if e := Explain(s); len(e.Missing) != 20 || !strings.Contains(e.Sentence, "17 more") {
		t.Errorf("%d missing: %s", len(e.Missing), e.Sentence)
	}
}
