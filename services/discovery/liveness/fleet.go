package liveness

import (
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/figures"
	"github.com/regroup-io/regroup/events/ident"
)

// Fleet is what a replica of discovery knows of the other nodes. One node cannot tell whether a
// slot or a program is at fault, nor what would be left without it.
type Fleet struct {
	Slots    int             // that may have work, the quarantined ones included
	Open     int             // of them, those that are not quarantined
	Failures []Failure       // on single slots, of the last while
	Measured [][]figures.GPU // by node
}

// Known is what a replica of discovery knows besides the record of a node.
type Known struct {
	Fleet func() Fleet // of the other nodes
	// SeenSince: see HeartbeatTracker.SeenSince. An observation may wait for the leader of a
	// stream, while the node is heard again. It may be nil.
	SeenSince func(Incarnation, time.Duration) bool
}

// known returns what the replica knows; nothing without one.
func (t *transition) known() (k Known) {
	if t.in.Others != nil {
		k, _ = t.in.Others().(Known)
	}
	return k
}

// Add adds a node.
func (f *Fleet) Add(s State) {
	slots, open := s.slots()
	f.Slots, f.Open = f.Slots+slots, f.Open+open
	if s.View.Preflight != nil {
		f.Measured = append(f.Measured, s.View.Preflight.GPUs)
	}
	for _, h := range s.Slots {
		f.Failures = append(f.Failures, h.Failures...)
	}
}

// slots returns how many slots of the node may have work, and how many of them are not quarantined.
func (s State) slots() (all, open int) {
	if !s.alive() || s.View.Draining || s.View.Excluded != "" {
		return 0, 0
	}
	return s.View.AllocatableSlots(), s.View.SchedulableSlots()
}

// fleet returns what is known of all nodes, this one as the transition has it. False: nothing is
// known of others.
func (t *transition) fleet() (Fleet, bool) {
	k := t.known()
	if k.Fleet == nil {
		return Fleet{}, false
	}
	f := k.Fleet()
	if v := t.s.View; !v.Draining && v.Excluded == "" { // it may be lost, and about to come back
		f.Slots, f.Open = f.Slots+v.AllocatableSlots(), f.Open+v.SchedulableSlots()
	}
	return f, true
}

// room reports whether n more slots of this node may be quarantined without a command: never the
// last one, and no more than a share of all.
func (t *transition) room(n int) bool {
	f, known := t.fleet()
	if !known {
		return true
	}
	return f.Open-n >= 1 && float64(f.Slots-f.Open+n) <= t.m.Rules.Share*float64(f.Slots)
}

// proofs returns the failures that speak against a slot, or with wholeNode against the node: what
// has failed on other slots too, or on other nodes, of the same job or submitter, has the program
// for its cause.
func (t *transition) proofs(slot ident.Slot, failures []Failure) []Failure {
	var others []Failure
	if slot != wholeNode {
		for s, h := range t.s.Slots {
			if s != slot {
				others = append(others, h.Failures...)
			}
		}
	}
	if k := t.known(); k.Fleet != nil {
		others = append(others, k.Fleet().Failures...)
	}
	return slices.DeleteFunc(slices.Clone(failures), func(f Failure) bool {
		return slices.ContainsFunc(others, func(o Failure) bool { return f.alike(o, t.m.Rules.Window) })
	})
}

// failingSlots returns the usable slots that fail as none of other nodes does.
func (t *transition) failingSlots() (failing []ident.Slot) {
	for slot := range ident.Slot(t.s.View.AllocatableSlots()) {
		i := t.quarantinedSlot(slot)
		if (i >= 0 && certain(t.s.View.QuarantinedSlots[i].Quarantine)) || t.m.Rules.Failures < 1 {
			continue
		}
		h := t.s.Slots[slot]
		failures := h.open()
		if i >= 0 || (t.s.ForSlots && t.s.View.Quarantine != nil) {
			failures = append(h.judged(t.m.Rules.Window), failures...)
		}
		if i >= 0 && t.s.View.QuarantinedSlots[i].Measured {
			continue // its figures are bad, those of the node's other GPUs are not
		}
		if i >= 0 && len(failures) < t.m.Rules.Failures || len(t.proofs(wholeNode, failures)) >= t.m.Rules.Failures {
			failing = append(failing, slot) // or its failures are forgotten
		}
	}
	return failing
}

// alike reports whether two failures within a window are of one job or one submitter.
func (f Failure) alike(o Failure, window time.Duration) bool {
	same := (f.Job != "" && f.Job == o.Job) || (f.By != "" && f.By == o.By)
	return same && f.At.Sub(o.At).Abs() < window
}

// pardon releases slots whose quarantine has lost its reason: what has failed there fails on others
// too, or no slot at all is left to run anything.
func (t *transition) pardon() {
	if len(t.s.View.QuarantinedSlots) == 0 && t.s.View.Quarantine == nil {
		return // thousands of agents say hello, and who knows all nodes reads them all
	}
	f, known := t.fleet()
	if !known {
		return
	}
	if f.Slots > 0 && f.Open == 0 {
		t.releaseWhere("no other slot is left", func(_ ident.Slot, q events.Quarantine) bool { return !certain(q) })
		return
	}
	t.releaseWhere("what failed there fails on other nodes too", func(slot ident.Slot, q events.Quarantine) bool {
		if slot == wholeNode || certain(q) || q.Measured {
			return false
		}
		led := t.s.Slots[slot].judged(t.m.Rules.Window)
		return len(led) >= t.m.Rules.Failures && len(t.proofs(wholeNode, led)) < t.m.Rules.Failures
	})
	if t.s.ForSlots && t.s.View.Quarantine != nil && len(t.failingSlots()) < t.slotsForNode() {
		t.releaseWhere("what fails on its slots fails on other nodes too", func(slot ident.Slot, q events.Quarantine) bool { return slot == wholeNode && !q.ByHand })
	}
}
