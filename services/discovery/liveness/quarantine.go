package liveness

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/internal/english"
)

// countedKept is how many incarnations with a counted failure a node keeps: each counts once.
const countedKept = 64

// failuresKept is how many failures of a slot are kept.
const failuresKept = 32

// slotReason is the maximum length in bytes of the reason for a slot's quarantine: every fact about
// the node carries those of all of its slots.
const slotReason = 160

// Rules configures quarantine. The first one lasts First, each further one twice as long as the
// previous, at most Max; every Decay without a failure undoes one doubling.
type Rules struct {
	Failures int           // failures of one slot within Window that quarantine it; 0 = never
	Losses   int           // losses of one node within Window that quarantine it; 0 = never
	Window   time.Duration // older failures and losses never count
	First    time.Duration
	Max      time.Duration
	Decay    time.Duration // counted from the end of a quarantine, and again from every failure
	Share    float64       // of all slots, that may be quarantined at a time, except by hand
}

// coolDown returns the length of the count-th consecutive quarantine, from 1.
func (r Rules) coolDown(count int) time.Duration {
	d := r.First
	for i := 1; i < count && d < r.Max; i++ {
		d *= 2
	}
	return min(d, r.Max)
}

// nextCount increments the count. It stops at Max, or its decay would have no effect for hours.
func (r Rules) nextCount(count int) int {
	if count > 0 && r.coolDown(count) >= r.Max {
		return count
	}
	return count + 1
}

// History is the record of failures of a slot, or of the node as a whole.
type History struct {
	// Within the window, oldest first. Those until Judged have led to a quarantine, and count for
	// no other; they still show what fails elsewhere too.
	Failures []Failure `json:"failures,omitempty"`
	Judged   time.Time `json:"judged,omitzero"`
	Count    int       `json:"count,omitempty"` // consecutive quarantines
	Newest   time.Time `json:"newest,omitzero"` // newest failure, or end of the newest quarantine
	Fault    time.Time `json:"fault,omitzero"`  // of the slot's GPU, the newest that has led to a quarantine
}

// Failure is one failure of a worker, or one loss of the node.
type Failure struct {
	At   time.Time   `json:"at"`
	Job  ident.JobID `json:"job,omitempty"`
	By   string      `json:"by,omitempty"`  // who has submitted the job
	Own  bool        `json:"own,omitempty"` // the program may have caused it itself, after Step
	Step uint64      `json:"step,omitempty"`
}

// open returns the failures that have led to no quarantine; judged those that led to the newest.
func (h History) open() []Failure {
	i := slices.IndexFunc(h.Failures, func(f Failure) bool { return f.At.After(h.Judged) })
	if i < 0 {
		return nil
	}
	return h.Failures[i:]
}

func (h History) judged(window time.Duration) []Failure {
	return slices.DeleteFunc(slices.Clone(h.Failures), func(f Failure) bool { return f.At.After(h.Judged) || h.Judged.Sub(f.At) >= window })
}

// decay undoes one doubling for every period without a failure.
func (h *History) decay(r Rules, now time.Time) {
	if clean := now.Sub(h.Newest); h.Count > 0 && r.Decay > 0 && clean >= r.Decay {
		n := int(clean / r.Decay)
		h.Count, h.Newest = max(0, h.Count-n), h.Newest.Add(time.Duration(n)*r.Decay)
	}
}

// record adds a failure and drops those outside the window.
func (h *History) record(r Rules, f Failure, now time.Time) {
	h.decay(r, now)
	h.Failures = append(slices.Clone(h.Failures), f)
	slices.SortStableFunc(h.Failures, func(a, b Failure) int { return a.At.Compare(b.At) })
	h.Failures = slices.DeleteFunc(h.Failures, func(f Failure) bool { return now.Sub(f.At) >= r.Window })
	h.Failures = h.Failures[max(0, len(h.Failures)-failuresKept):]
	h.Newest = now
}

func (h *History) beginQuarantine(r Rules, reason string, now time.Time) events.Quarantine {
	h.Count = r.nextCount(h.Count)
	q := events.Quarantine{Since: now, Until: now.Add(r.coolDown(h.Count)), Reason: reason, Count: h.Count}
	h.Judged, h.Newest = now, q.Until
	return q
}

// failureCounted applies that the registry has counted a failure of a worker here.
func (t *transition) failureCounted(b events.JobFailureCounted) {
	v, r, slot := &t.s.View, t.m.Rules, b.Place.Slot
	counts := r.Failures > 0 || b.Kind == events.FailureCorrupt
	if v.State == "" || !counts || slot < 0 || int(slot) >= v.Slots || slices.Contains(t.s.CountedWorkers, b.Worker) {
		return
	}
	at := t.in.Time
	if at.IsZero() || at.After(t.now) {
		at = t.now
	}
	if t.now.Sub(at) >= r.Window {
		return // the fact was delivered too late
	}
	t.s.CountedWorkers = append(slices.Clone(t.s.CountedWorkers), b.Worker)
	t.s.CountedWorkers = t.s.CountedWorkers[max(0, len(t.s.CountedWorkers)-countedKept):]
	if b.Kind == events.FailureLost {
		return // the loss of the node counts once, not for each of its slots
	}
	t.expire()
	if t.quarantinedSlot(slot) >= 0 {
		return // the workers there are about to be stopped
	}
	if b.Kind == events.FailureStart {
		t.cannotStart(slot, b.Detail)
		return
	}
	if b.Kind == events.FailureCorrupt {
		t.computesWrongly(slot, b.Detail)
		return
	}
	h, f := t.s.Slots[slot], Failure{At: at, Job: b.Job, By: b.By, Own: b.Kind == events.FailureCrash || b.Kind == events.FailureOOM}
	if f.Own {
		f.Step = b.Step
		if slices.ContainsFunc(h.open(), func(o Failure) bool { return o.Own && o.Job == f.Job && o.Step == f.Step }) {
			return // a program without progress is at fault, and the registry ends its job
		}
	}
	h.record(r, f, t.now)
	t.setHistory(slot, h)
	if proofs := t.proofs(slot, h.open()); len(proofs) >= r.Failures && t.room(1) {
		q := h.beginQuarantine(r, fmt.Sprintf("%s within %s, the last: %s of %s", english.Plural(len(proofs), "failure"), shortDuration(r.Window), b.Detail, b.Job), t.now)
		t.setHistory(slot, h)
		t.quarantineSlot(slot, q)
	}
	t.quarantineFailingNode()
}

// cannotStart quarantines a node that has no process, descriptor, memory or disk left, so that its
// work goes elsewhere at once: the slot that has shown it loses its worker.
func (t *transition) cannotStart(slot ident.Slot, detail string) {
	if t.s.View.Quarantine == nil {
		if !t.room(t.s.View.SchedulableSlots()) {
			return
		}
		t.s.Losses.decay(t.m.Rules, t.now)
		t.quarantine(t.s.Losses.beginQuarantine(t.m.Rules, detail, t.now))
	}
	h := t.s.Slots[slot]
	h.decay(t.m.Rules, t.now)
	q := h.beginQuarantine(t.m.Rules, detail, t.now)
	t.setHistory(slot, h)
	t.quarantineSlot(slot, q)
}

// computesWrongly quarantines a slot whose worker has not the results of the others, at the first
// time: what it computes next may be wrong, too, and nobody might see it.
func (t *transition) computesWrongly(slot ident.Slot, detail string) {
	if !t.room(1) {
		return
	}
	h := t.s.Slots[slot]
	h.decay(t.m.Rules, t.now)
	q := h.beginQuarantine(t.m.Rules, detail, t.now)
	t.setHistory(slot, h)
	t.quarantineSlot(slot, q)
	t.quarantineFailingNode()
}

// quarantineFailingNode quarantines a node of which several slots fail, or the only one: the slots
// are then not the cause.
func (t *transition) quarantineFailingNode() {
	v := &t.s.View
	if v.Quarantine != nil || v.AllocatableSlots() == 0 {
		return
	}
	failing := t.failingSlots()
	if len(failing) < t.slotsForNode() || !t.room(v.SchedulableSlots()) {
		return
	}
	reason := "its only slot is quarantined"
	if len(failing) > 1 {
		var names []string
		for _, s := range failing {
			names = append(names, fmt.Sprint(s))
			h := t.s.Slots[s]
			h.Judged = t.now
			t.setHistory(s, h)
		}
		reason = "slots " + strings.Join(names, ", ") + " fail"
	}
	t.s.Losses.decay(t.m.Rules, t.now)
	t.quarantine(t.s.Losses.beginQuarantine(t.m.Rules, reason, t.now))
	t.s.ForSlots = true
}

// slotsForNode returns how many failing slots quarantine the node.
func (t *transition) slotsForNode() int { return min(2, t.s.View.AllocatableSlots()) }

// countLoss counts a loss of the node. A loss while it drains is maintenance.
func (t *transition) countLoss() {
	r := t.m.Rules
	if r.Losses <= 0 || t.s.View.Draining || t.s.View.Quarantine != nil {
		return
	}
	h := &t.s.Losses
	h.record(r, Failure{At: t.now}, t.now)
	if n := len(h.open()); n >= r.Losses && t.room(t.s.View.SchedulableSlots()) {
		t.quarantine(h.beginQuarantine(r, fmt.Sprintf("lost %s within %s", english.Plural(n, "time"), shortDuration(r.Window)), t.now))
	}
}

// quarantineByHand applies a command to quarantine a node or a slot.
func (t *transition) quarantineByHand(b events.NodeQuarantine) {
	if !t.exists(b.Slot) {
		return
	}
	if b.For <= 0 {
		t.refuse(errcode.Invalid, "for is %s: a quarantine lasts for some time", b.For.D())
		return
	}
	q := events.Quarantine{Since: t.now, Until: t.now.Add(b.For.D()), Reason: "by hand", ByHand: true}
	if b.Reason != "" {
		q.Reason += ": " + b.Reason
	}
	if b.Slot == nil {
		if old := t.s.View.Quarantine; old == nil || !sameQuarantine(*old, q) {
			t.quarantine(q)
		}
		return
	}
	if i := t.quarantinedSlot(*b.Slot); i < 0 || !sameQuarantine(t.s.View.QuarantinedSlots[i].Quarantine, q) {
		t.quarantineSlot(*b.Slot, q)
	}
}

// release ends a quarantine by hand and clears the failures that led to it.
func (t *transition) release(b events.NodeRelease) {
	if !t.exists(b.Slot) {
		return
	}
	reason := "released by hand"
	if b.Reason != "" {
		reason += ": " + b.Reason
	}
	t.waiveFigures(b.Slot)
	if b.Slot != nil {
		t.forgive(*b.Slot)
		t.releaseWhere(reason, func(s ident.Slot, _ events.Quarantine) bool { return s == *b.Slot })
		return
	}
	t.s.Losses = History{}
	for slot := range t.s.Slots {
		t.forgive(slot)
	}
	t.releaseWhere(reason, func(ident.Slot, events.Quarantine) bool { return true })
}

// forgive forgets what has failed on a slot, and what its GPU has shown until now.
func (t *transition) forgive(slot ident.Slot) {
	if h := t.s.Slots[slot]; !h.Fault.IsZero() {
		t.s.Slots[slot] = History{Fault: t.faultOf(slot, h)}
		return
	}
	delete(t.s.Slots, slot)
}

// expire ends expired quarantines. A clock that was set back does not extend them.
func (t *transition) expire() {
	v := &t.s.View
	moved := func(q events.Quarantine) events.Quarantine {
		q.Since, q.Until = t.now, t.now.Add(q.Until.Sub(q.Since))
		return q
	}
	if q := v.Quarantine; q != nil && t.now.Before(q.Since) {
		fixed := moved(*q)
		v.Quarantine = &fixed
	}
	for i, b := range v.QuarantinedSlots {
		if t.now.Before(b.Since) {
			v.QuarantinedSlots = slices.Clone(v.QuarantinedSlots)
			v.QuarantinedSlots[i].Quarantine = moved(b.Quarantine)
		}
	}
	t.judgeGPUs()
	t.renewMeasured()
	t.releaseWhere("its cool-down is over", func(_ ident.Slot, q events.Quarantine) bool { return !t.now.Before(q.Until) })
	t.pardon()
}

// wholeNode stands for the node in place of a slot.
const wholeNode ident.Slot = -1

// releaseWhere ends the quarantines that over selects, those of slots first.
func (t *transition) releaseWhere(reason string, over func(ident.Slot, events.Quarantine) bool) {
	v := &t.s.View
	for _, b := range v.QuarantinedSlots {
		if over(b.Slot, b.Quarantine) {
			i := t.quarantinedSlot(b.Slot)
			v.QuarantinedSlots = slices.Concat(v.QuarantinedSlots[:i], v.QuarantinedSlots[i+1:]) // nil if none is left
			t.released(&b.Slot, reason)
		}
	}
	if q := v.Quarantine; q != nil && over(wholeNode, *q) {
		v.Quarantine = nil
		t.released(nil, reason)
	}
}

func (t *transition) released(slot *ident.Slot, reason string) {
	f := t.fact()
	f.Reason = reason
	t.publish(events.NodeReleased{NodeFact: f, Slot: slot})
}

func (t *transition) quarantine(q events.Quarantine) {
	t.s.View.Quarantine, t.s.ForSlots = &q, false
	t.publishQuarantined(nil, q)
}

// quarantineSlot quarantines a slot and replaces an earlier quarantine, if any.
func (t *transition) quarantineSlot(slot ident.Slot, q events.Quarantine) {
	v := &t.s.View
	q.Reason = limits.Shorten(q.Reason, slotReason)
	v.QuarantinedSlots = slices.Clone(v.QuarantinedSlots)
	if i := t.quarantinedSlot(slot); i >= 0 {
		v.QuarantinedSlots[i].Quarantine = q
	} else {
		v.QuarantinedSlots = append(v.QuarantinedSlots, events.QuarantinedSlot{Slot: slot, Quarantine: q})
		slices.SortFunc(v.QuarantinedSlots, func(a, b events.QuarantinedSlot) int { return cmp.Compare(a.Slot, b.Slot) })
	}
	t.publishQuarantined(&slot, q)
}

func (t *transition) publishQuarantined(slot *ident.Slot, q events.Quarantine) {
	f := t.fact()
	f.Reason = q.Reason
	t.publish(events.NodeQuarantined{NodeFact: f, Slot: slot, Until: q.Until, Count: q.Count})
}

// quarantinedSlot returns the index of the slot among the quarantined ones, or -1.
func (t *transition) quarantinedSlot(slot ident.Slot) int {
	return slices.IndexFunc(t.s.View.QuarantinedSlots, func(b events.QuarantinedSlot) bool { return b.Slot == slot })
}

func (t *transition) setHistory(slot ident.Slot, h History) {
	if t.s.Slots == nil {
		t.s.Slots = map[ident.Slot]History{}
	}
	t.s.Slots[slot] = h
}

// exists reports whether the node and slot exist, and refuses the command if not.
func (t *transition) exists(slot *ident.Slot) bool {
	v := &t.s.View
	switch {
	case v.State == "":
		t.refuse(errcode.NotFound, "there is no node %s", v.Node)
	case slot != nil && v.Slots == 0:
		t.refuse(errcode.NotFound, "node %s has no slots", v.Node)
	case slot != nil && (*slot < 0 || int(*slot) >= v.Slots):
		t.refuse(errcode.NotFound, "there is no slot %d on node %s: it has 0 to %d", *slot, v.Node, v.Slots-1)
	default:
		return true
	}
	return false
}

// sameQuarantine reports whether a repeated command would change nothing.
func sameQuarantine(a, b events.Quarantine) bool {
	return a.ByHand == b.ByHand && a.Reason == b.Reason && a.Since.Equal(b.Since) && a.Until.Equal(b.Until)
}

// quarantineEnd returns when the next quarantine ends, or zero if there is none.
func (s State) quarantineEnd() time.Time {
	var first time.Time
	if s.View.Quarantine != nil {
		first = s.View.Quarantine.Until
	}
	for _, b := range s.View.QuarantinedSlots {
		first = events.Earliest(first, b.Until)
	}
	return first
}

// shortDuration formats 10m0s as 10m.
func shortDuration(d time.Duration) string {
	return strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(d.String())
}
