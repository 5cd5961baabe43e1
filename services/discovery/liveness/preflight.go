package liveness

import (
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/figures"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
)

// Agents may measure their GPUs before they offer slots. The slot of a GPU that fails, or that is
// far slower than others of its model, is quarantined; so it is judged by what is known of the
// fleet, which is little when its first nodes come. Therefore a hello judges again after a while.

const (
	// judgeFiguresEvery is how often figures are compared with those of the fleet, which all its
	// nodes' documents have.
	judgeFiguresEvery = 5 * time.Minute
	// measuredKept is how many GPUs of a node have their figures kept.
	measuredKept = 128
)

// Measured is what was decided of the figures of a node's GPUs.
type Measured struct {
	Judged time.Time    `json:"judged,omitzero"`
	Waived []ident.Slot `json:"waived,omitempty"` // released by hand; until they are measured again
}

// noteFigures keeps the newest figures of each GPU that the node has.
func (t *transition) noteFigures(p *figures.Preflight) {
	v := &t.s.View
	kept := figures.Preflight{}
	if p != nil {
		kept.Problem, kept.AllReduce = p.Problem, p.AllReduce
	}
	for _, g := range v.GPUs[:min(len(v.GPUs), measuredKept)] {
		old, had := figuresOf(v.Preflight, g.ID)
		now, has := figuresOf(p, g.ID)
		switch {
		case has && (!had || now.At.After(old.At)):
			t.s.Measured = Measured{} // to be judged
			now.Failure, now.NotMeasured = limits.Shorten(now.Failure, slotReason), limits.Shorten(now.NotMeasured, slotReason)
			kept.GPUs = append(kept.GPUs, now)
		case had:
			kept.GPUs = append(kept.GPUs, old)
		}
	}
	if v.Preflight = &kept; p == nil && kept.GPUs == nil {
		v.Preflight = nil
	}
}

func figuresOf(p *figures.Preflight, id string) (figures.GPU, bool) {
	if p == nil {
		return figures.GPU{}, false
	}
	i := slices.IndexFunc(p.GPUs, func(g figures.GPU) bool { return g.ID == id })
	if i < 0 {
		return figures.GPU{}, false
	}
	return p.GPUs[i], true
}

// judgeFigures quarantines the slots whose GPUs are unfit and may go, and releases those that were
// quarantined for figures that are no longer so: at once with new figures, else after a while.
func (t *transition) judgeFigures() {
	if t.m.Rules.First <= 0 || !t.slotsHaveFigures() || t.now.Sub(t.s.Measured.Judged) < judgeFiguresEvery {
		return
	}
	t.s.Measured.Judged = t.now
	unfit := t.unfit()
	t.releaseWhere("its GPU is as good as others", func(slot ident.Slot, q events.Quarantine) bool {
		return slot != wholeNode && q.Measured && unfit[slot] == ""
	})
	for slot := range ident.Slot(t.s.View.AllocatableSlots()) {
		if unfit[slot] != "" && t.quarantinedSlot(slot) < 0 && t.room(1) {
			t.quarantineMeasured(slot, unfit[slot])
		}
	}
}

// renewMeasured goes on with quarantines that would end now, of slots whose GPUs are still unfit:
// time does not repair them. Those of a node that is gone end, so that it can be forgotten: when it
// comes back it is judged again.
func (t *transition) renewMeasured() {
	if t.m.Rules.First <= 0 || !t.slotsHaveFigures() {
		return
	}
	if !t.s.alive() {
		t.s.Measured.Judged = time.Time{}
		return
	}
	var unfit map[ident.Slot]string
	for _, b := range t.s.View.QuarantinedSlots {
		if b.ByHand || t.now.Before(b.Until) {
			continue
		}
		if unfit == nil {
			unfit = t.unfit()
		}
		if unfit[b.Slot] != "" && t.room(0) {
			t.quarantineMeasured(b.Slot, unfit[b.Slot])
		}
	}
}

func (t *transition) quarantineMeasured(slot ident.Slot, reason string) {
	h := t.s.Slots[slot]
	h.decay(t.m.Rules, t.now)
	q := h.beginQuarantine(t.m.Rules, reason, t.now)
	q.Measured = true
	t.setHistory(slot, h)
	t.quarantineSlot(slot, q)
}

// waiveFigures has the figures of a slot, or of all, count no more.
func (t *transition) waiveFigures(slot *ident.Slot) {
	if t.s.View.Preflight == nil {
		return
	}
	t.s.Measured.Waived = slices.Clone(t.s.Measured.Waived)
	for s := range ident.Slot(len(t.s.View.GPUs)) {
		if (slot == nil || *slot == s) && !slices.Contains(t.s.Measured.Waived, s) {
			t.s.Measured.Waived = append(t.s.Measured.Waived, s)
		}
	}
}

// slotsHaveFigures reports whether each slot has a GPU of its own, and some were measured.
func (t *transition) slotsHaveFigures() bool {
	v := &t.s.View
	return v.Preflight != nil && len(v.Preflight.GPUs) > 0 && len(v.GPUs) == v.Slots
}

// unfit returns what speaks against the GPUs of slots, beside those of all nodes.
func (t *transition) unfit() map[ident.Slot]string {
	v := &t.s.View
	others := slices.Clone(v.Preflight.GPUs)
	if k := t.known(); k.Fleet != nil {
		for _, node := range k.Fleet().Measured {
			others = append(others, node...)
		}
	}
	unfit := map[ident.Slot]string{}
	for i, g := range v.GPUs {
		slot := ident.Slot(i)
		if f, ok := figuresOf(v.Preflight, g.ID); ok && !slices.Contains(t.s.Measured.Waived, slot) {
			unfit[slot] = f.Unfit(others)
		}
	}
	return unfit
}
