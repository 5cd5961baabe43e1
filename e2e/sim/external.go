package sim

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/rendezvous/round"
)

// participants are the self-registering nodes of a job that the scheduler does not place, as with
// `regroup agent --join-job`.
type participants struct {
	nodes      []int // slots of each node
	min, max   int
	perNode    int
	lastCall   time.Duration
	joinWithin time.Duration
}

// String writes MIN:MAX/WORKERS PER NODE/LAST CALL/JOIN TIMEOUT/SLOTS,SLOTS.
func (x *participants) String() string {
	return fmt.Sprintf("%d:%d/%d/%s/%s/%s", x.min, x.max, x.perNode, x.lastCall, x.joinWithin, strings.ReplaceAll(numbers(x.nodes), " ", ","))
}

func parseParticipants(text string) (*participants, error) {
	f := strings.Split(text, "/")
	if len(f) != 5 {
		return nil, fmt.Errorf("participants %q: want MIN:MAX/PER NODE/LAST CALL/JOIN/SLOTS,SLOTS", text)
	}
	w, err := parseWorkers(f[0])
	x := &participants{min: w.Min, max: w.Max}
	_, err1 := fmt.Sscan(f[1], &x.perNode)
	var err2, err3 error
	x.lastCall, err2 = time.ParseDuration(f[2])
	x.joinWithin, err3 = time.ParseDuration(f[3])
	err = errors.Join(err, err1, err2, err3)
	for s := range strings.SplitSeq(f[4], ",") {
		n, wrong := strconv.Atoi(s)
		x.nodes, err = append(x.nodes, n), errors.Join(err, wrong)
	}
	return x, err
}

// externalEvery is how often a seed has such a job: one in externalEvery.
const externalEvery = 3

// drawExternal adds a job with self-registering nodes to a scenario. It has a random source of its
// own, so that the rest of the scenario does not depend on it.
func drawExternal(sc *scenario) {
	if sc.seed%externalEvery != 1 || sc.seed%largeWorldEvery == largeWorldEvery-1 {
		return
	}
	r := rand.New(rand.NewPCG(sc.seed, 7))
	x := &participants{
		min: 1 + r.IntN(3), perNode: 1 + r.IntN(2), lastCall: time.Duration(200+r.IntN(1800)) * time.Millisecond,
		joinWithin: time.Duration(20+r.IntN(30)) * time.Second, // longer than the restart of an agent takes,
	}
	x.max = x.min + r.IntN(3)
	for range x.min + r.IntN(x.max-x.min+2) { // at least min, at most one more than max
		x.nodes = append(x.nodes, x.perNode+r.IntN(2))
	}
	j := drawJob(r, 4, 3, 1)
	j.participants, j.resets, j.sameStep = x, 0, 0
	sc.jobs = append(sc.jobs, j)
	kinds := slices.Sorted(maps.Keys(participantFaults))
	for range 1 + r.IntN(5) {
		sc.faults = append(sc.faults, fault{
			at:   time.Duration(1000+r.IntN(max(1, int(sc.calmAt/time.Millisecond)-1300))) * time.Millisecond,
			kind: kinds[r.IntN(len(kinds))], a: r.IntN(1000), b: r.IntN(1000), last: time.Duration(100+r.IntN(6000)) * time.Millisecond,
		})
	}
	slices.SortStableFunc(sc.faults, func(a, b fault) int { return int(a.at - b.at) })
}

// participantFaults are the faults that only hit self-registering nodes.
var participantFaults = map[string]func(*world, fault){
	"participant-leaves": onParticipant(func(w *world, n *node, f fault) {
		if n.up {
			n.quit(f.last)
		}
	}),
	"participant-restarts": onParticipant(func(w *world, n *node, f fault) { n.restart(f.b%2 == 0, f.last) }),
	"participant-is-lost": onParticipant(func(w *world, n *node, f fault) {
		if n.job.canFormWithout(n) {
			n.lose()
		}
	}),
	"close-job": onParticipant(func(w *world, n *node, f fault) {
		if f.b%3 == 0 {
			w.call(n, events.ServiceRendezvous, events.RendezvousClose{Job: n.job.id, Reason: "enough"}, func(events.Body, error) {})
		}
	}),
}

// onParticipant is a fault that hits a self-registering node, if there is one.
func onParticipant(do func(*world, *node, fault)) func(*world, fault) {
	return func(w *world, f fault) {
		all := slices.DeleteFunc(slices.Clone(w.nodes), func(n *node) bool { return n.job == nil || n.away })
		if len(all) > 0 {
			do(w, all[f.a%len(all)], f)
		}
	}
}

// canFormWithout reports whether the job could form a round without a node.
func (j *jobRun) canFormWithout(without *node) bool {
	left := 0
	for _, n := range j.w.nodes {
		if n.job == j && n != without && !n.away {
			left++
		}
	}
	return left >= j.spec.Rendezvous.Nodes.Min
}

// spec makes the job one with self-registering nodes.
func (x *participants) spec(s *spec.Job) {
	s.Workers = spec.Workers{}
	s.Rendezvous = &spec.Rendezvous{
		Nodes: spec.NodeRange{Min: x.min, Max: x.max}, WorkersPerNode: x.perNode, JoinTimeout: spec.Duration(x.joinWithin),
		LastCallTimeout: spec.Duration(x.lastCall), KeepAliveInterval: spec.Duration(time.Second),
	}
}

// buildParticipants makes the nodes of a job.
func (w *world) buildParticipants(j *jobRun, x *participants) {
	if x == nil {
		return
	}
	for _, slots := range x.nodes {
		n := newNode(w, nodeName(len(w.nodes)), slots)
		n.job = j
		w.nodes = append(w.nodes, n)
	}
}

// offered is the number of slots that the scheduler may assign.
func (n *node) offered() int {
	if n.job != nil {
		return 0
	}
	return n.slots
}

// come requests to enter the job until there is a reply, once discovery has taken the node in.
// Launches and later hellos repeat it.
func (n *node) come() {
	if n.job == nil || n.leaving || n.quitting || n.asking || !n.welcome {
		return
	}
	n.asking = true
	ask := events.NodeEnter{Job: n.job.id, Node: n.id, Incarnation: n.agent, Slots: n.slots, Spec: n.job.spec}
	n.w.call(n, events.ServiceRendezvous, ask, func(b events.Body, err error) {
		n.asking = false
		if err != nil {
			switch errcode.Of(err) {
			case errcode.Conflict, errcode.Invalid:
				n.w.check.fail(14, "%s was refused: %s", n.id, err)
			}
			n.after(n.w.between(50*time.Millisecond, 2*time.Second), n.come)
			return
		}
		s := b.(events.NodeMembership)
		n.w.logf("%s: %s in %s (%d of %d to %d)", n.id, s.Membership, n.job.id, s.Nodes, s.Min, s.Max)
		if s.Membership.Final() && s.Membership != events.MembershipOver { // whatever started it tries again
			n.quit(n.w.between(time.Second, 4*time.Second))
		}
	})
}

// quit stops an agent and starts it again later: it first leaves the job, which continues.
func (n *node) quit(again time.Duration) {
	if n.quitting || n.leaving {
		return
	}
	n.quitting = true
	incarnation := n.incarnation
	end := func() {
		if n.incarnation == incarnation && !n.leaving {
			n.leaving = true
			n.input(worker.Shutdown{})
		}
	}
	exit := events.NodeExit{Job: n.job.id, Node: n.id, Incarnation: n.agent, Reason: "its agent was asked to end"}
	n.w.call(n, events.ServiceRendezvous, exit, func(events.Body, error) { n.w.after(n.w.between(0, 2*time.Second), end) })
	n.w.after(4*time.Second, end)
	n.w.after(again+12*time.Second, func() {
		if n.incarnation == incarnation { // it has not ended in time
			n.die(false)
		}
		n.boot()
	})
}

// checkRendezvous checks the rendezvous of self-registering nodes.
func (c *checker) checkRendezvous(old, s round.State) {
	x := s.Nodes
	if x == nil {
		return
	}
	r := s.Spec.Rendezvous
	seen := map[ident.NodeID]bool{}
	in := 0
	for _, n := range x.Candidates {
		if seen[n.Node] {
			c.fail(14, "%s is twice in the rendezvous of %s", n.Node, s.View.Job)
		}
		if seen[n.Node] = true; n.List == "participant" {
			in++
		}
	}
	switch {
	case in > r.Nodes.Max, x.Complete && in < r.Nodes.Min:
		c.fail(14, "%s has %d participants of %d to %d, complete: %t", s.View.Job, in, r.Nodes.Min, r.Nodes.Max, x.Complete)
	case old.Nodes != nil && old.Nodes.Closed != "" && x.Closed == "":
		c.fail(14, "%s was closed and is open again", s.View.Job)
	case old.Nodes != nil && old.Nodes.Round > x.Round:
		c.fail(14, "%s is in round %d after %d", s.View.Job, x.Round, old.Nodes.Round)
	}
}
