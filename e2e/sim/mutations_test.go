package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/discovery/liveness"
	"github.com/regroup-io/regroup/services/registry/job"
	"github.com/regroup-io/regroup/services/rendezvous/round"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

// broken is a real machine with a planted fault.
type broken[S any] struct {
	controller.Machine[S]
	step func(m controller.Machine[S], s S, in events.Input, now time.Time) (S, events.Decision)
}

func (b broken[S]) Step(s S, in events.Input, now time.Time) (S, events.Decision) {
	return b.step(b.Machine, s, in, now)
}

type stepOf[S any] func(m controller.Machine[S], s S, in events.Input, now time.Time) (S, events.Decision)

func breaks[S any](step stepOf[S]) func(controller.Machine[S]) controller.Machine[S] {
	return func(m controller.Machine[S]) controller.Machine[S] { return broken[S]{m, step} }
}

// facts is a mutation that rewrites the published facts.
func facts[S any](change func([]events.Fact) []events.Fact) func(controller.Machine[S]) controller.Machine[S] {
	return breaks(func(m controller.Machine[S], s S, in events.Input, now time.Time) (S, events.Decision) {
		s, d := m.Step(s, in, now)
		d.Facts = change(d.Facts)
		return s, d
	})
}

// twice publishes facts of one kind two times.
func twice(kind events.Type) func([]events.Fact) []events.Fact {
	return func(in []events.Fact) (out []events.Fact) {
		for _, f := range in {
			out = append(out, f)
			if f.Body.Type() == kind {
				out = append(out, f)
			}
		}
		return out
	}
}

func never(kind events.Type) func([]events.Fact) []events.Fact {
	return func(in []events.Fact) []events.Fact {
		return slices.DeleteFunc(in, func(f events.Fact) bool { return f.Body.Type() == kind })
	}
}

var mutations = []struct {
	mutation
	caughtBy []int  // any of these invariants
	from     uint64 // first seed to try: no earlier seed shows the fault
}{
	{mutation{name: "seals twice", round: facts[round.State](twice(events.RoundSealed{}.Type()))}, []int{1}, 0},
	{mutation{name: "leaves a gap in the ranks", round: facts[round.State](func(in []events.Fact) []events.Fact {
		for _, f := range in {
			if b, ok := f.Body.(events.RoundSealed); ok {
				b.Members[len(b.Members)-1].Rank++
			}
		}
		return in
	})}, []int{2}, 0},
	{mutation{name: "ends the lease of a lost node too early", nodes: hurried}, []int{16}, 0},
	{mutation{name: "seals below min", round: breaks(func(m controller.Machine[round.State], s round.State, in events.Input, now time.Time) (round.State, events.Decision) {
		least := s.Workers.Min
		s.Workers.Min = min(1, least)
		s, d := m.Step(s, in, now)
		if s.Workers.Min == 1 {
			s.Workers.Min = max(least, 1)
		}
		return s, d
	})}, []int{2}, 0},
	{mutation{name: "accepts a stale join", round: breaks(func(m controller.Machine[round.State], s round.State, in events.Input, now time.Time) (round.State, events.Decision) {
		if j, ok := in.Body.(events.MemberJoin); ok {
			j.Left = s.View.Generation
			in.Body = j
		}
		return m.Step(s, in, now)
	})}, []int{4, 5, 8}, 15},
	{mutation{name: "gives a slot twice", pool: breaks(func(m controller.Machine[plan.State], s plan.State, in events.Input, now time.Time) (plan.State, events.Decision) {
		s, d := m.Step(s, in, now)
		for _, j := range s.Queue[min(1, len(s.Queue)):] {
			a, b := s.View.Jobs[s.Queue[0].ID], s.View.Jobs[j.ID]
			if len(a.Places) > 0 && len(b.Places) > 0 {
				b.Places = slices.Clone(b.Places)
				b.Places[0] = a.Places[0]
				s.View.Jobs[j.ID] = b
			}
		}
		return s, d
	})}, []int{3}, 0},
	{mutation{name: "keeps the places of an ended job", pool: breaks(func(m controller.Machine[plan.State], s plan.State, in events.Input, now time.Time) (plan.State, events.Decision) {
		if in.Body.Type() == (events.JobSucceeded{}).Type() || in.Body.Type() == (events.JobStopped{}).Type() {
			return s, events.Decision{}
		}
		return m.Step(s, in, now)
	})}, []int{8}, 0},
	{mutation{name: "treats a waiting job as removed", pool: breaks(func(m controller.Machine[plan.State], s plan.State, in events.Input, now time.Time) (plan.State, events.Decision) {
		// As a reconciliation does whose list lacks a job that is written meanwhile.
		if b, ok := in.Body.(events.JobSubmitted); ok && len(s.View.Queue) > 20 {
			in = events.Input{Body: events.JobStopped{JobEnd: events.JobEnd{Job: b.Job}}}
		}
		return m.Step(s, in, now)
	})}, []int{15}, 13},
	{mutation{name: "ignores the failure budget", job: breaks(func(m controller.Machine[job.State], s job.State, in events.Input, now time.Time) (job.State, events.Decision) {
		limit, many := s.View.Spec.Failures.Max, 1000
		if limit == nil {
			return m.Step(s, in, now)
		}
		s.View.Spec.Failures.Max = &many
		s, d := m.Step(s, in, now)
		s.View.Spec.Failures.Max = limit
		return s, d
	})}, []int{10}, 0},
	{mutation{name: "counts a failure twice", job: breaks(func(m controller.Machine[job.State], s job.State, in events.Input, now time.Time) (job.State, events.Decision) {
		before := len(s.View.Failures)
		s, d := m.Step(s, in, now)
		if len(s.View.Failures) > before {
			s.View.Failures = append(slices.Clone(s.View.Failures), now)
		}
		return s, d
	})}, []int{10}, 0},
	{mutation{name: "counts the end of an agent for each of its workers", job: breaks(func(m controller.Machine[job.State], s job.State, in events.Input, now time.Time) (job.State, events.Decision) {
		s, d := m.Step(s, in, now)
		for _, f := range d.Facts {
			b, ok := f.Body.(events.JobFailureCounted)
			if !ok || b.Kind != events.FailureLost {
				continue
			}
			for _, w := range s.View.Workers {
				if w.Place.Node == b.Place.Node && w.Incarnation != b.Worker && w.Agent == b.Agent {
					b.Place, b.Worker, b.Generation = w.Place, w.Incarnation, 0 // the others have gone on without it
					d.Facts = append(d.Facts, events.Fact{Body: b, Cause: f.Cause, Trace: f.Trace})
				}
			}
		}
		return s, d
	})}, []int{17}, 0},
	{mutation{name: "replaces a worker twice", job: facts[job.State](twice(events.JobRespawned{}.Type()))}, []int{10}, 0},
	{mutation{name: "never replaces a worker", job: facts[job.State](never(events.JobRespawned{}.Type()))}, []int{8}, 0},
	{mutation{name: "revives a terminal job", job: breaks(func(m controller.Machine[job.State], s job.State, in events.Input, now time.Time) (job.State, events.Decision) {
		if s.View.State.Terminal() && in.Body.Type() == (events.WorkerExited{}).Type() {
			s.View.State = events.JobStateRunning
		}
		return m.Step(s, in, now)
	})}, []int{7}, 0},
	{mutation{name: "opens an incident twice", job: facts[job.State](twice(events.IncidentOpened{}.Type()))}, []int{11}, 0},
	{mutation{name: "starts a process twice", agent: func(real agentStep) agentStep {
		return func(s worker.State, in worker.Input, now time.Time) (worker.State, []worker.Action) {
			s, actions := real(s, in, now)
			for _, a := range actions {
				if p, ok := a.(worker.StartProcess); ok {
					return s, append(actions, p)
				}
			}
			return s, actions
		}
	}}, []int{12}, 0},
	{mutation{name: "lets a spare take part", round: breaks(func(m controller.Machine[round.State], s round.State, in events.Input, now time.Time) (round.State, events.Decision) {
		s, d := m.Step(s, in, now)
		if s.Nodes != nil {
			for i := range s.Nodes.Candidates {
				if c := &s.Nodes.Candidates[i]; c.List == "spare" {
					c.List = "participant"
				}
			}
		}
		return s, d
	})}, []int{14}, 0},
	{mutation{name: "opens a closed rendezvous", round: breaks(func(m controller.Machine[round.State], s round.State, in events.Input, now time.Time) (round.State, events.Decision) {
		s, d := m.Step(s, in, now)
		if s.Nodes != nil && in.Body.Type() == (events.NodeEnter{}).Type() {
			s.Nodes.Closed = ""
		}
		return s, d
	})}, []int{14}, 40},
	{mutation{name: "keeps a lost self-registered node", round: breaks(func(m controller.Machine[round.State], s round.State, in events.Input, now time.Time) (round.State, events.Decision) {
		if f := in.Body.Type(); s.Nodes != nil && (f == (events.NodeLost{}).Type() || f == (events.NodeSuspected{}).Type() || f == (events.NodeJoined{}).Type()) {
			return s, events.Decision{}
		}
		return m.Step(s, in, now)
	})}, []int{8}, 0},
	{mutation{name: "counts a step that was undone", voidSteps: true}, []int{6}, 0},
	{mutation{name: "assigns a quarantined slot", pool: breaks(func(m controller.Machine[plan.State], s plan.State, in events.Input, now time.Time) (plan.State, events.Decision) {
		b, ok := in.Body.(events.NodeQuarantined)
		if !ok {
			return m.Step(s, in, now)
		}
		quarantined := b.QuarantinedSlots
		b.QuarantinedSlots = nil
		in.Body = b
		s, d := m.Step(s, in, now)
		n := s.Nodes[b.Node]
		n.QuarantinedSlots = quarantined
		s.Nodes[b.Node] = n
		return s, d
	})}, []int{13}, 0},
	{mutation{name: "never ends a quarantine", nodes: breaks(func(m controller.Machine[liveness.State], s liveness.State, in events.Input, now time.Time) (liveness.State, events.Decision) {
		q, b := s.View.Quarantine, s.View.QuarantinedSlots
		s, d := m.Step(s, in, now)
		if slices.ContainsFunc(d.Facts, func(f events.Fact) bool { return f.Body.Type() == (events.NodeReleased{}).Type() }) {
			s.View.Quarantine, s.View.QuarantinedSlots = q, b
			d.Facts = never(events.NodeReleased{}.Type())(d.Facts)
		}
		return s, d
	})}, []int{8, 13}, 0},
	{mutation{name: "forgets an outbox", forgetful: true}, []int{8, 9}, 25},
}

// anyRevision is an agent that applies the launch that arrives last.
func anyRevision(real agentStep) agentStep {
	newest := map[ident.JobID]uint64{}
	return func(s worker.State, in worker.Input, now time.Time) (worker.State, []worker.Action) {
		if l, ok := in.(worker.Launched); ok {
			newest[l.Launch.Job] = max(newest[l.Launch.Job]+1, l.Launch.Revision)
			l.Launch.Revision = newest[l.Launch.Job]
			in = l
		}
		return real(s, in, now)
	}
}

// TestMutations shows that the invariants detect faults: each broken machine is caught within some
// seeds.
func TestMutations(t *testing.T) {
	const most = 300
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for s := m.from; s < m.from+most; s++ {
				v := run(draw(s), m.mutation, nil)
				if v == nil {
					continue
				}
				t.Logf("seed %d: %s", s, v)
				if !slices.Contains(m.caughtBy, v.number) {
					t.Errorf("seed %d: caught by %s; want one of %v", s, v, m.caughtBy)
				}
				return
			}
			t.Errorf("was not caught within %d seeds from %d on", most, m.from)
		})
	}
}
