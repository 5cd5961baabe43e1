package liveness

import (
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// judgeGPUs quarantines the slots whose GPUs have shown a fault since they were judged last. Such a
// quarantine goes on without a break if the fault was seen during it again.
//
// A fault of the device is known, and not inferred from workers that fail: neither the share of all
// slots nor what fails elsewhere counts, and a slot that is the last one is quarantined, too.
// Nothing could run there.
func (t *transition) judgeGPUs() {
	v := &t.s.View
	if !v.HasSlotGPUs() || t.m.Rules.First <= 0 || !t.s.alive() {
		return
	}
	for i, g := range v.GPUs {
		slot := ident.Slot(i)
		h := t.s.Slots[slot]
		if g.Fault == nil || !g.Fault.At.After(h.Fault) {
			continue
		}
		if j := t.quarantinedSlot(slot); j >= 0 {
			q := v.QuarantinedSlots[j]
			if q.ByHand { // it says how long
				h.Fault = g.Fault.At
				t.setHistory(slot, h)
			}
			if q.ByHand || (q.Device && t.now.Before(q.Until)) {
				continue
			}
		}
		h.decay(t.m.Rules, t.now)
		h.Fault = g.Fault.At
		q := h.beginQuarantine(t.m.Rules, g.Fault.Reason, t.now)
		q.Device = true
		t.setHistory(slot, h)
		t.quarantineSlot(slot, q)
	}
}

// faultOf returns the time of the newest known fault of a slot's GPU: what was seen until now is
// forgiven with a release by hand, and what is seen later counts.
func (t *transition) faultOf(slot ident.Slot, h History) time.Time {
	v := &t.s.View
	if v.HasSlotGPUs() && int(slot) < v.Slots {
		if f := v.GPUs[slot].Fault; f != nil && f.At.After(h.Fault) {
			return f.At
		}
	}
	return h.Fault
}

// certain reports whether a quarantine is no inference from failures: a command, or a fault of a
// device.
func certain(q events.Quarantine) bool { return q.ByHand || q.Device }
