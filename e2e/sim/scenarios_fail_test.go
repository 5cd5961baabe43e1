package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/leases"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/discovery/liveness"
	"github.com/regroup-io/regroup/services/registry/job"
	"github.com/regroup-io/regroup/services/rendezvous/round"
)

// deaf is a machine that ignores some inputs.
func deaf[S any](to func(events.Input) bool) func(controller.Machine[S]) controller.Machine[S] {
	return breaks(func(m controller.Machine[S], s S, in events.Input, now time.Time) (S, events.Decision) {
		if to(in) {
			return s, events.Decision{}
		}
		return m.Step(s, in, now)
	})
}

func isA[B events.Body](in events.Input) bool {
	_, ok := in.Body.(B)
	return ok
}

// scenarioMutants maps each written scenario to a mutation that it must detect.
var scenarioMutants = map[string]mutation{
	"two_replicas_one_job":                     {name: "stores whatever the revision is", careless: true},
	"lost_acknowledgement_then_changed":        {name: "treats a lost acknowledgement as received", believing: true},
	"crash_between_save_and_publish":           {name: "forgets an outbox", forgetful: true},
	"crash_after_publish_beyond_deduplication": {name: "does not ask the log what it has", trustful: true},
	"lost_launch":                              {name: "never publishes a launch again", round: deafToRepeats},
	"late_launch_of_a_frozen_replica":          {name: "applies launches in any order", agent: anyRevision},
	"agent_cut_off_while_a_worker_dies":        {name: "never loses a node", nodes: deaf[liveness.State](isA[events.HeartbeatMissed])},
	"frozen_agent_whose_workers_train": {name: "ignores the loss of a slot", round: deaf[round.State](func(in events.Input) bool {
		return isA[events.NodeLost](in) || isA[events.PlacementSet](in) && in.Number > 1
	})},
	"all_of_discovery_restarts":          {name: "gives no grace", graceless: true},
	"stop_overtakes_submit":              {name: "drops commands for unknown jobs", job: deaf[job.State](func(in events.Input) bool { return isA[events.JobStop](in) })},
	"false_alarm":                        {name: "believes every accusation", agent: believes},
	"respawn_ready_just_before_the_seal": {name: "excludes new workers from an open round", round: keepsOut},
	"respawn_ready_just_after_the_seal":  {name: "ignores a new worker", round: keepsOut},
	"last_holder_dies_in_the_sync":       {name: "does not know its workers' commits", round: commitless},
	"hung_worker_is_replaced":            {name: "ignores a stalled job", round: deaf[round.State](isA[events.JobStalled])},
	"hung_group_is_restarted":            {name: "ignores a stalled job", round: deaf[round.State](isA[events.JobStalled])},
	"hung_worker_without_which_there_are_too_few": {
		name: "ignores missed members", job: deaf[job.State](isA[events.RoundMissed]),
	},
	"slow_worker_continues":                               {name: "declares a job hung too early", hasty: true},
	"deaf_registry_declares_nothing_hung":                 {name: "believes a replica that receives nothing", job: credulous},
	"connections_that_break_at_every_attempt_end_the_job": {name: "ignores missing progress", job: hopeful},
	"killed_worker_whose_memory_is_reclaimed_slowly":      {name: "waits for every exit", agent: waitsForExits},
	"lease_of_a_node_cut":                                 {name: "has agents that know of no lease", leaseless: true},
	"lease_of_a_node_freeze":                              {name: "ends leases too early", nodes: hurried},
	"lease_of_a_node_revoke":                              {name: "waits for no lease", round: leaseBlind, leaseless: true},
	"commit_of_a_rolled_back_branch":                      {name: "does not know its workers' commits", round: commitless},
}

// TestScenariosCanFail shows that every written scenario detects the fault that it was written for.
func TestScenariosCanFail(t *testing.T) {
	for name, m := range scenarioMutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, wrong := played(t, "testdata/scenarios/"+name+".txt", m); wrong == "" {
				t.Errorf("it does not notice code that %s", m.name)
			} else {
				t.Logf("code that %s: %s", m.name, wrong)
			}
		})
	}
	for _, name := range scenarioNames(t) {
		if _, ok := scenarioMutants[name]; !ok {
			t.Errorf("%s: no mutation shows that it can fail", name)
		}
	}
}

// credulous is a registry that does not check whether another replica knows a later step.
var credulous = breaks(func(m controller.Machine[job.State], s job.State, in events.Input, now time.Time) (job.State, events.Decision) {
	if b, ok := in.Body.(events.StepsStalled); ok {
		b.Step = max(b.Step, s.View.Step)
		in.Body = b
	}
	return m.Step(s, in, now)
})

// deafToRepeats is a rendezvous that ignores heartbeats and repeated joins for a sealed generation.
var deafToRepeats = breaks(func(m controller.Machine[round.State], s round.State, in events.Input, now time.Time) (round.State, events.Decision) {
	if j, ok := in.Body.(events.MemberJoin); isA[events.Heartbeat](in) || ok && j.Left < s.View.Generation {
		return s, events.Decision{}
	}
	return m.Step(s, in, now)
})

// waitsForExits is an agent that does not look whether a lost worker is dying.
func waitsForExits(step agentStep) agentStep {
	return func(s worker.State, in worker.Input, now time.Time) (worker.State, []worker.Action) {
		s, actions := step(s, in, now)
		return s, slices.DeleteFunc(actions, func(a worker.Action) bool { _, ok := a.(worker.ExamineProcess); return ok })
	}
}

// keepsOut is a rendezvous that applies first joins only before the first generation is sealed.
var keepsOut = deaf2(func(s round.State, in events.Input) bool {
	j, ok := in.Body.(events.MemberJoin)
	return ok && j.Left == 0 && s.View.Generation > 0
})

func deaf2(to func(round.State, events.Input) bool) func(controller.Machine[round.State]) controller.Machine[round.State] {
	return breaks(func(m controller.Machine[round.State], s round.State, in events.Input, now time.Time) (round.State, events.Decision) {
		if to(s, in) {
			return s, events.Decision{}
		}
		return m.Step(s, in, now)
	})
}

// commitless is a rendezvous that ignores the commits of its members.
var commitless = breaks(func(m controller.Machine[round.State], s round.State, in events.Input, now time.Time) (round.State, events.Decision) {
	if j, ok := in.Body.(events.MemberJoin); ok {
		j.Commit = tables.Commit{}
		in.Body = j
	}
	return m.Step(s, in, now)
})

// believes is an agent that kills a worker as soon as it joins again after a failure.
func believes(real agentStep) agentStep {
	return func(s worker.State, in worker.Input, now time.Time) (worker.State, []worker.Action) {
		s, actions := real(s, in, now)
		if j, ok := in.(worker.WorkerJoined); ok && len(j.Request.Accused) > 0 {
			actions = append(slices.Clone(actions), worker.KillProcess{Worker: j.Worker})
		}
		return s, actions
	}
}

// hopeful is a registry that never learns that generations make no progress.
var hopeful = breaks(func(m controller.Machine[job.State], s job.State, in events.Input, now time.Time) (job.State, events.Decision) {
	if b, ok := in.Body.(events.RoundSealed); ok {
		b.NoProgress = 0
		in.Body = b
	}
	return m.Step(s, in, now)
})

// leaseBlind is a rendezvous that does not wait for the processes of lost nodes.
var leaseBlind = breaks(func(m controller.Machine[round.State], s round.State, in events.Input, now time.Time) (round.State, events.Decision) {
	for i := range s.LostNodes {
		s.LostNodes[i].Ends = leases.Ends{}
	}
	return m.Step(s, in, now)
})

// hurried is a discovery that takes agents for silent for longer than they were.
var hurried = breaks(func(m controller.Machine[liveness.State], s liveness.State, in events.Input, now time.Time) (liveness.State, events.Decision) {
	if b, ok := in.Body.(events.HeartbeatMissed); ok {
		b.Silence += spec.Duration(10 * time.Second)
		in.Body, in.Others = b, nil // or it knows better
	}
	return m.Step(s, in, now)
})
