package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
)

// kinds are the faults by name. Each interprets a and b, modulo the number of its targets.
var kinds = map[string]func(*world, fault){
	"trap":           (*world).setTrap,
	"crash-replica":  func(w *world, f fault) { w.replica(f).crash(f.last) },
	"freeze-replica": func(w *world, f fault) { w.replica(f).freeze(f.last) },
	"cut-replica":    func(w *world, f fault) { during((*replica).cutOff)(w.replica(f), f.last) },
	"cut-node":       func(w *world, f fault) { during((*node).cutOff)(w.node(f), f.last) },
	"revoke-node":    func(w *world, f fault) { during((*node).revoke)(w.node(f), f.last) },
	"mute-node":      func(w *world, f fault) { during((*node).setMute)(w.node(f), f.last) },
	"deafen-node":    func(w *world, f fault) { during((*node).setDeaf)(w.node(f), f.last) },
	"freeze-node":    func(w *world, f fault) { w.node(f).freeze(f.last) },
	"mute-replica":   func(w *world, f fault) { during((*replica).mute)(w.replica(f), f.last) },
	"deafen-replica": func(w *world, f fault) { during((*replica).deafen)(w.replica(f), f.last) },
	"partition-nodes": func(w *world, f fault) {
		a, b := w.nodes[f.a%len(w.nodes)], w.nodes[f.b%len(w.nodes)]
		w.partition(a.id, b.id, f.last/2)
	},
	"late-ack":      func(w *world, f fault) { w.replica(f).trap(trap{step: loseSaveAckLate, for_: f.last}) },
	"drop-launch":   func(w *world, f fault) { w.node(f).misses++ },
	"kill-worker":   func(w *world, f fault) { w.end(f, -1, "SIGKILL") },
	"hang-worker":   (*world).hangWorker,
	"fail-slot":     (*world).failSlot,
	"exit-worker":   func(w *world, f fault) { w.end(f, 7, "") },
	"false-alarm":   (*world).falseDetection,
	"restart-agent": func(w *world, f fault) { w.node(f).restart(f.b%2 == 0, f.last) },
	"lose-node": func(w *world, f fault) {
		if n := w.node(f); w.spare(n) {
			n.lose()
		}
	},
	"leave-node": func(w *world, f fault) {
		if n := w.node(f); n.job != nil {
			participantFaults["participant-leaves"](w, f)
		} else if n.up {
			n.leaving = true
			n.input(worker.Shutdown{})
			w.after(f.last+8*time.Second, n.boot)
		}
	},
	"drain-node": func(w *world, f fault) {
		n := w.node(f)
		w.drain(n, false)
		w.after(f.last, func() { w.drain(n, true) })
	},
	"quarantine-node": (*world).quarantine,
	"strike-host":     (*world).delist,
	"scale-job":       (*world).scale,
	"stop-job":        func(w *world, f fault) { w.stop(f) },
	"submit-again": func(w *world, f fault) {
		j := w.jobs[f.a%len(w.jobs)]
		spec := j.spec
		spec.Workers = j.wanted[0]
		w.command(events.Event{ID: "submit-" + spec.Name, Source: "/client", Time: w.now, Body: events.JobSubmit{Spec: spec}})
	},
}

// drawFaults draws the schedule of faults.
func drawFaults(r *rand.Rand, sc scenario) []fault {
	names := append(slices.Sorted(maps.Keys(kinds)), "kill-worker", "kill-worker", "exit-worker", "restart-agent", "false-alarm", "trap", "trap", "trap", "scale-job", "fail-slot", "quarantine-node", "strike-host")
	var out []fault
	for range r.IntN(13 + len(sc.nodes)/2) {
		out = append(out, fault{
			at:   time.Duration(200+r.IntN(max(1, int(sc.calmAt/time.Millisecond)-300))) * time.Millisecond,
			kind: names[r.IntN(len(names))], a: r.IntN(1000), b: r.IntN(1000),
			last: time.Duration(100+r.IntN(6000)) * time.Millisecond,
		})
	}
	stopped := 0
	out = slices.DeleteFunc(out, func(f fault) bool { // most jobs should end by themselves
		if f.kind == "stop-job" {
			stopped++
		}
		return f.kind == "stop-job" && (stopped > 1 || r.IntN(2) == 0)
	})
	slices.SortStableFunc(out, func(a, b fault) int { return int(a.at - b.at) })
	return out
}

func (w *world) inject(f fault) {
	if !w.calm {
		w.logf("FAULT %s", f)
		if own := participantFaults[f.kind]; own != nil {
			own(w, f)
		} else {
			kinds[f.kind](w, f)
		}
	}
}

func (w *world) replica(f fault) *replica {
	names := events.ServiceNames()
	all := w.services[names[f.a%len(names)]]
	return all[f.b%len(all)]
}

func (w *world) node(f fault) *node { return w.nodes[f.a%len(w.nodes)] }

// setTrap sets a trap for a step of a replica's next processing.
func (w *world) setTrap(f fault) {
	w.replica(fault{a: f.a, b: f.b / len(steps)}).trap(trap{step: steps[f.b%len(steps)], for_: f.last})
}

// spare reports whether all jobs would still fit without a node. Two jobs that were placed once and
// have less than their min would wait for each other's slots for ever, because there is no
// preemption.
func (w *world) spare(n *node) bool {
	slots, need := 0, 0
	if n.job != nil {
		return n.job.canFormWithout(n)
	}
	for _, o := range w.nodes {
		if o != n && !o.away {
			slots += o.offered()
		}
	}
	for _, j := range w.jobs {
		if j.spec.SelfRegistered() {
			continue
		}
		least := 0
		for _, v := range j.wanted {
			least = max(least, v.Min)
		}
		need += least
	}
	return slots >= need
}

// running lists all processes, by node.
func (w *world) running() []*process {
	var alive []*process
	for _, n := range w.nodes {
		for p := range n.living {
			if p.running {
				alive = append(alive, p)
			}
		}
	}
	return alive
}

func (w *world) end(f fault, code int, signal string) {
	if alive := w.running(); len(alive) > 0 {
		alive[f.a%len(alive)].exit(code, signal)
	}
}

// falseDetection breaks a connection between two live members.
func (w *world) falseDetection(f fault) {
	j := w.jobs[f.a%len(w.jobs)]
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(j.groups))) {
		if g := j.groups[n]; g.running && !g.broken && g.world > 1 {
			g.members[f.b%g.world].abort([]int{(f.b + 1) % g.world})
			return
		}
	}
}

func (w *world) drain(n *node, undo bool) {
	w.send("drain", events.NodeDrain{Node: n.id, Reason: "maintenance", Undo: undo})
}

func (w *world) scale(f fault) {
	j := w.jobs[f.a%len(w.jobs)]
	least := 1 + f.b%2
	n := spec.Workers{Min: min(least, j.wanted[0].Min), Max: least + f.b/2%4}
	n.Max = max(n.Max, n.Min)
	if m := j.shape.multiple; m > 0 {
		n.Min, n.Max = (n.Min+m-1)/m*m, (n.Max+m-1)/m*m
	}
	w.scaleTo(j, n)
}

func (w *world) scaleTo(j *jobRun, n spec.Workers) {
	j.wanted = append(j.wanted, n)
	w.send("scale", events.JobScale{Job: j.id, Workers: n})
}

// stop may precede the submit.
func (w *world) stop(f fault) {
	j := w.jobs[f.a%len(w.jobs)]
	w.send("stop", events.JobStop{Job: j.id, Reason: fmt.Sprint("fault ", f.at), Now: f.b%2 == 0})
}

// delist removes a node, or some of its slots, from the host list for a while.
func (w *world) delist(f fault) {
	n := w.node(f)
	if n.listed = (events.HostEntry{Excluded: "no line names it"}); f.b%2 == 0 {
		slots := f.b / 2 % (n.slots + 1)
		n.listed = events.HostEntry{Slots: &slots}
	}
	w.after(f.last, func() { n.listed = events.HostEntry{} })
}

// quarantine quarantines a node or a slot by a command; another command may end it.
func (w *world) quarantine(f fault) {
	n := w.node(f)
	var slot *ident.Slot
	if f.b%3 > 0 {
		slot = new(ident.Slot)
		*slot = ident.Slot(f.b / 3 % n.slots)
	}
	w.send("quarantine", events.NodeQuarantine{Node: n.id, Slot: slot, For: spec.Duration(f.last), Reason: "fault"})
	if f.b%5 == 0 {
		w.after(f.last/2, func() { w.send("release", events.NodeRelease{Node: n.id, Slot: slot}) })
	}
}

// failSlot kills each process in one slot until after the slot is quarantined.
func (w *world) failSlot(f fault) {
	n := w.node(f)
	at := ident.Place{Node: n.id, Slot: ident.Slot(f.b % n.slots)}
	for i := range 4 {
		w.after(time.Duration(i)*f.last/4, func() {
			if w.calm {
				return
			}
			for p := range n.living {
				if p.running && p.start.Place == at {
					p.exit(-1, "SIGKILL")
				}
			}
		})
	}
}

// calmDown ends all faults: everything that is partitioned, frozen, draining or down is restored,
// except the nodes that were removed.
func (w *world) calmDown() {
	w.calm = true
	w.logf("faults have stopped")
	clear(w.partitioned)
	for _, name := range events.ServiceNames() {
		for _, s := range w.services[name] {
			s.freeze(0)
			s.cutOff(false)
			s.mute(false)
			s.deafen(false)
			s.start()
		}
	}
	for _, n := range w.nodes {
		n.cutOff(false)
		n.setMute(false)
		n.setDeaf(false)
		if n.frozen {
			n.thaw()
		}
		n.listed = events.HostEntry{}
		w.drain(n, true)
		if !n.up {
			w.after(w.between(0, 2*time.Second), n.boot)
		}
	}
	w.wakeAll()
	w.check.watchEnd()
}
