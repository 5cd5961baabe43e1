package sim

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/discovery"
)

// discoveryConfig is the default configuration, for seeds with shorter times: slots and nodes are
// quarantined easily, and come back soon.
func (w *world) discoveryConfig() discovery.Config {
	c := discovery.DefaultConfig()
	if w.sc.exact {
		return c
	}
	c.Quarantine = discovery.Quarantine{
		Charges: 2, Losses: 2, Window: time.Minute, First: time.Second, Most: 8 * time.Second, Decay: 30 * time.Second,
	}
	return c
}

// list compares the host list with the stored nodes, as every replica does after each update of the
// list.
func (v *watcher) list() {
	if v.w.now.Sub(v.asked) < v.w.discoveryConfig().HostEvery {
		return
	}
	v.asked = v.w.now
	for _, id := range slices.Sorted(maps.Keys(v.views)) {
		view, n := v.views[id], v.w.nodeOf(id)
		if n != nil && (view.Excluded != n.listed.Excluded || !reflect.DeepEqual(view.Cap, n.listed.Slots)) {
			b := n.listed
			b.Node = id
			v.r.put(controller.InputItem(events.Input{Body: b}))
		}
	}
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
	var slot *events.Slot
	if f.b%3 > 0 {
		slot = new(events.Slot)
		*slot = events.Slot(f.b / 3 % n.slots)
	}
	w.send("quarantine", events.NodeQuarantine{Node: n.id, Slot: slot, For: spec.Duration(f.last), Reason: "fault"})
	if f.b%5 == 0 {
		w.after(f.last/2, func() { w.send("release", events.NodeRelease{Node: n.id, Slot: slot}) })
	}
}

// failSlot kills each process in one slot until after the slot is quarantined.
func (w *world) failSlot(f fault) {
	n := w.node(f)
	at := events.Place{Node: n.id, Slot: events.Slot(f.b % n.slots)}
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
