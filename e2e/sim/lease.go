package sim

import (
	"slices"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/discovery/liveness"
)

// renewEvery is how often an agent asks for its lease.
const renewEvery = 500 * time.Millisecond

// leased is an agent's lease, as its guard knows it: a second process that is not frozen with the
// agent.
type leased struct {
	restart, inPlace time.Time
	lost             uint64 // how often this incarnation was declared lost, as far as it knows
}

// grant applies a lease that was asked for at a time.
func (n *node) grant(asked time.Time, restart, inPlace time.Duration) {
	if n.w.mutant.leaseless {
		return
	}
	n.lease.restart, n.lease.inPlace = asked.Add(restart), asked.Add(inPlace)
	n.input(worker.LeaseRenewed{Restart: n.lease.restart, InPlace: n.lease.inPlace, Reason: "discovery has not answered"})
}

// lostBefore applies how often discovery has declared this incarnation lost.
func (n *node) lostBefore(times uint64) {
	if times > n.lease.lost && !n.w.mutant.leaseless {
		n.lease.lost = times
		n.input(worker.LeaseLost{Reason: "its node was declared lost"})
	}
}

// renew asks one replica of discovery for the lease, and again after a while.
func (n *node) renew() {
	n.after(renewEvery, n.renew)
	n.askLease()
}

// askLease asks once, also after each hello that was answered.
func (n *node) askLease() {
	incarnation := n.incarnation
	if n.cut || n.mute || n.frozen {
		return
	}
	asked, who, link := n.w.now, liveness.Incarnation{Node: n.id, Incarnation: n.agent}, n.link
	n.w.after(n.w.hop(), func() {
		all := slices.DeleteFunc(slices.Clone(n.w.services[events.ServiceDiscovery]), func(s *replica) bool { return !s.canReceive() })
		if len(all) == 0 || n.w.chance(n.w.sc.loss) {
			return
		}
		r := all[n.w.any(len(all))]
		r.whenAwake(func() {
			answer := r.tracker.(*watcher).tracker.Renew(who, link, n.w.now)
			if answer.Mend {
				r.receive(events.HeartbeatSeen{Heartbeat: events.Heartbeat{Node: who.Node, Incarnation: who.Incarnation, Link: link}})
			}
			if !answer.Granted || !r.canSend() {
				return
			}
			c := n.w.discoveryConfig()
			n.w.after(n.w.hop(), func() {
				if n.incarnation == incarnation && !n.cut && !n.deaf {
					n.lostBefore(answer.TimesLost)
					n.grant(asked, c.Lease, c.LeaseInPlace)
				}
			})
		})
	})
}

// whenAwake calls do now, or when a frozen replica has resumed, if it has not crashed by then.
func (r *replica) whenAwake(do func()) {
	if !r.isFrozen() {
		do()
		return
	}
	r.after(50*time.Millisecond, func() { r.whenAwake(do) })
}

// guard kills the processes of a frozen agent when their lease is over.
func (n *node) guard() {
	n.after(100*time.Millisecond, n.guard)
	if !n.frozen {
		return
	}
	for p := range n.living {
		end := n.lease.restart
		if p.inProcess() {
			end = n.lease.inPlace
		}
		if !end.IsZero() && !n.w.now.Before(end) {
			p.exit(-1, "SIGKILL")
		}
	}
}

// revoke has the broker refuse an agent's credentials, or ends that.
func (n *node) revoke(is bool) {
	n.cutOff(is)
	if is && !n.w.mutant.leaseless {
		n.input(worker.LeaseLost{All: true, Reason: "the broker refuses its credentials"})
	}
}

// oneCopy checks that no process of an earlier generation lives when a process of a job is started
// that restarts as a group: it could be a second copy of a rank.
func (c *checker) oneCopy(p *process) {
	if p.job.spec.Recovery == spec.RecoveryInProcess {
		return
	}
	for _, n := range c.w.nodes {
		for q := range n.living {
			if q.job == p.job && q.start.Generation < p.start.Generation {
				c.fail(16, "%s: %s starts in g%d while %s of g%d is alive", p.job.id, p.start.Place, p.start.Generation, q.start.Place, q.start.Generation)
			}
		}
	}
}
