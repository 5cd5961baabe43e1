package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
)

// verbs are the actions of written scenarios. Each reads its operands and returns its effect.
// REPLICA is a replica of a service, like rendezvous-0, or a service: all of its replicas.
//
//	crash|freeze|cut|mute|deafen REPLICA for TIME     frozen: it is paused; mute: it sends nothing; deaf: it receives nothing
//	trap REPLICA STEP [for TIME]                      the fault strikes at this step of its next processing
//	route KIND REPLICA                                facts, commands and requests of a kind go there while it can receive
//	cut|mute|deafen|freeze NODE for TIME              the agent; its workers train on
//	restart NODE for TIME [keeping its disk]          a reboot, with all processes
//	lose|leave|drain|undrain NODE
//	partition NODE NODE for TIME                      their workers cannot reach each other
//	drop launch NODE                                  the next one is lost in transit
//	hang PLACE [for TIME]                             like SIGSTOP
//	kill PLACE [for TIME] · exit PLACE CODE · accuse PLACE by PLACE    the agent can wait for it only after that time
//	delay PLACE TIME                                  how long the next process there takes until it joins
//	tear PLACE by PLACE                               only the first has the next commit, because the second dies during it
//	stop JOB [now] · scale JOB MIN:MAX
var verbs = map[string]func(*operands) func(*world){
	"crash":  onParty((*replica).crash, nil),
	"freeze": onParty((*replica).freeze, (*node).freeze),
	"cut":    onParty(during((*replica).cutOff), during((*node).cutOff)),
	"revoke": onParty(nil, during((*node).revoke)),
	"mute":   onParty(during((*replica).mute), during((*node).setMute)),
	"deafen": onParty(during((*replica).deafen), during((*node).setDeaf)),
	"trap":   verbTrap,
	"route": func(o *operands) func(*world) {
		kind, who := o.next("a kind"), o.next("a replica")
		return func(w *world) { w.routes[kind] = w.replicasNamed(who)[0] }
	},
	"restart": func(o *operands) func(*world) {
		who, d := o.next("a node"), o.span()
		disk := o.word("keeping") && o.word("its") && o.word("disk")
		return func(w *world) { w.nodeNamed(who).restart(disk, d) }
	},
	"lose":    onNode(func(_ *world, n *node) { n.lose() }),
	"leave":   onNode(func(w *world, n *node) { n.leaving = true; n.input(worker.Shutdown{}) }),
	"drain":   onNode(func(w *world, n *node) { w.drain(n, false) }),
	"undrain": onNode(func(w *world, n *node) { w.drain(n, true) }),
	"partition": func(o *operands) func(*world) {
		a, b, d := events.NodeID(o.next("a node")), events.NodeID(o.next("a node")), o.span()
		return func(w *world) { w.partition(a, b, d) }
	},
	"drop": func(o *operands) func(*world) {
		if !o.word("launch") {
			o.fail("only a launch can be dropped")
		}
		return onNode(func(_ *world, n *node) { n.misses++ })(o)
	},
	"kill": onProcess(func(p *process, d time.Duration) { p.reclaimed = d; p.exit(-1, "SIGKILL") }),
	"hang": onProcess(func(p *process, d time.Duration) {
		p.hang()
		if d > 0 {
			p.w.after(d, p.wake)
		}
	}),
	"exit": func(o *operands) func(*world) {
		at, code := o.place(), o.number()
		return func(w *world) { w.with(at, func(p *process) { p.exit(code, "") }) }
	},
	"accuse": onTwo(func(p, by *process) { by.abort([]int{p.rank}) }),
	"delay": func(o *operands) func(*world) {
		at, d := o.place(), o.time()
		return func(w *world) { w.nodeNamed(string(at.Node)).startDelay[at.Slot] = d }
	},
	"tear": onTwo(func(p, by *process) { p.group.torn = &torn{keeps: p.start.Place, dies: by.start.Place} }),
	"stop": func(o *operands) func(*world) {
		job, now := o.next("a job"), o.word("now")
		return func(w *world) { w.send("stop", events.JobStop{Job: w.named(job).id, Reason: "asked to", Now: now}) }
	},
	"scale": func(o *operands) func(*world) {
		job := o.next("a job")
		n, err := parseWorkers(o.next("MIN:MAX"))
		if err != nil {
			o.fail("%w", err)
		}
		return func(w *world) { w.scaleTo(w.named(job), n) }
	},
}

// during switches something on, and off again after a time.
func during[P interface{ timeline() *world }](set func(P, bool)) func(P, time.Duration) {
	return func(p P, d time.Duration) {
		set(p, true)
		p.timeline().after(d, func() { set(p, false) })
	}
}

func (n *node) timeline() *world    { return n.w }
func (r *replica) timeline() *world { return r.w }

func onParty(s func(*replica, time.Duration), n func(*node, time.Duration)) func(*operands) func(*world) {
	return func(o *operands) func(*world) {
		who, d := o.next("a replica or node"), o.span()
		return func(w *world) {
			if strings.HasPrefix(who, "node-") && n != nil {
				n(w.nodeNamed(who), d)
				return
			}
			for _, v := range w.replicasNamed(who) {
				s(v, d)
			}
		}
	}
}

func onNode(do func(*world, *node)) func(*operands) func(*world) {
	return func(o *operands) func(*world) {
		who := o.next("a node")
		return func(w *world) { do(w, w.nodeNamed(who)) }
	}
}

// onProcess is a verb for the process in a slot, and a time.
func onProcess(do func(*process, time.Duration)) func(*operands) func(*world) {
	return func(o *operands) func(*world) {
		at, d := o.place(), o.span()
		return func(w *world) { w.with(at, func(p *process) { do(p, d) }) }
	}
}

func verbTrap(o *operands) func(*world) {
	who, at := o.next("a replica"), step(o.next("a step"))
	if !slices.Contains(steps, at) && at != loseSaveAckLate {
		o.fail("there is no step %s", at)
	}
	d := o.span()
	return func(w *world) {
		for _, v := range w.replicasNamed(who) {
			v.trap(trap{step: at, for_: d})
		}
	}
}

// onTwo is a verb for the processes in two slots.
func onTwo(do func(p, by *process)) func(*operands) func(*world) {
	return func(o *operands) func(*world) {
		at := o.place()
		if !o.word("by") {
			o.fail("by whom?")
		}
		by := o.place()
		return func(w *world) {
			w.with(by, func(q *process) {
				w.with(at, func(p *process) {
					if p.group == nil || p.group != q.group {
						w.check.fail(0, "script: %s and %s are not in one generation", by, at)
						return
					}
					do(p, q)
				})
			})
		}
	}
}

// Lookup of names. An unknown name in a script fails its run.

func (w *world) nodeNamed(name string) *node {
	n := w.nodeOf(events.NodeID(name))
	if n == nil {
		panic(fmt.Sprintf("script: there is no node %s", name))
	}
	return n
}

func (w *world) replicasNamed(name string) []*replica {
	if all := w.services[name]; all != nil {
		return all
	}
	for _, v := range slices.Concat(slices.Collect(maps.Values(w.services))...) {
		if v.who == name {
			return []*replica{v}
		}
	}
	panic(fmt.Sprintf("script: there is no service or replica %s", name))
}

func (w *world) named(job string) *jobRun {
	for _, j := range w.jobs {
		if j.spec.Name == job {
			return j
		}
	}
	panic(fmt.Sprintf("script: there is no job %s", job))
}

// with calls do with the process in a slot.
func (w *world) with(at events.Place, do func(*process)) {
	for p := range w.nodeNamed(string(at.Node)).living {
		if p.start.Place == at {
			do(p)
			return
		}
	}
	w.check.fail(0, "script: no process lives at %s", at)
}
