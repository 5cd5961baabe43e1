package liveness_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/figures"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/discovery/liveness"
)

func anySlot(t *rapid.T) *ident.Slot {
	s := ident.Slot(rapid.IntRange(-1, 5).Draw(t, "slot"))
	if s < 0 {
		return nil
	}
	return &s
}

func anyCharge(t *rapid.T) events.JobFailureCounted {
	return events.JobFailureCounted{
		Job: "demo-0001", Place: ident.Place{Node: "node-a", Slot: ident.Slot(rapid.IntRange(-1, 5).Draw(t, "slot"))},
		Worker: ident.Incarnation(fmt.Sprint("W", rapid.IntRange(0, 40).Draw(t, "life"))), Detail: "exit code 1",
		Agent: ident.Incarnation(rapid.SampledFrom([]string{"A", "B", "C", "D", ""}).Draw(t, "agent")),
		Step:  uint64(rapid.IntRange(0, 3).Draw(t, "step")),
		Kind:  rapid.SampledFrom([]events.FailureKind{events.FailureCrash, events.FailureSignal, events.FailureLost}).Draw(t, "kind"),
	}
}

func text(v any) string {
	raw, _ := json.Marshal(v)
	return string(raw)
}

// sameAttributes verifies that the newest fact's attributes other than the state match the record.
// For a gone node the host list may have changed since: it is not used before the next hello.
func sameAttributes(t *rapid.T, f events.NodeFact, v events.NodeView) {
	if v.State == "" {
		return
	}
	at := func(q *events.Quarantine) string {
		if q == nil {
			return ""
		}
		return q.Reason
	}
	if at(f.Quarantine) != at(v.Quarantine) || len(f.QuarantinedSlots) != len(v.QuarantinedSlots) {
		t.Fatalf("the newest fact knows quarantine %s %s, the record %s %s", text(f.Quarantine), text(f.QuarantinedSlots), text(v.Quarantine), text(v.QuarantinedSlots))
	}
	alive := v.State == events.NodeStateReady || v.State == events.NodeStateSuspected
	if alive && (f.Slots != v.AllocatableSlots() || (f.Excluded == "") != (v.Excluded == "")) {
		t.Fatalf("the newest fact offers %d slots (%q), the record %d (%q)", f.Slots, f.Excluded, v.AllocatableSlots(), v.Excluded)
	}
}

// trackedNode is a machine and its history so far.
type trackedNode struct {
	m   liveness.Machine
	s   liveness.State
	now time.Time
}

func (p *trackedNode) step(b events.Body, at time.Time) events.Decision {
	var d events.Decision
	p.s, d = p.m.Step(p.s, events.Input{Body: b, Time: at}, p.now)
	return d
}

func admitted() *trackedNode {
	p := &trackedNode{m: liveness.Machine{Rules: rules}, now: noon}
	p.s = p.m.New("node-a")
	p.step(events.NodeHello{Node: "node-a", Incarnation: "A", Slots: 4}, time.Time{})
	return p
}

// measured has the agent say hello with newer figures, in which one GPU has failed; -1 and 4 =
// none.
func (p *trackedNode) measured(bad int) {
	var all figures.Preflight
	gpus := make([]devices.GPU, 4)
	for i := range gpus {
		gpus[i].ID = fmt.Sprint("GPU-", i)
		g := figures.GPU{ID: gpus[i].ID, At: p.now}
		if i == bad {
			g.Failure = "wrong results"
		}
		all.GPUs = append(all.GPUs, g)
	}
	p.step(events.NodeHello{Node: "node-a", Incarnation: "A", Slots: 4, GPUs: gpus, Preflight: &all}, p.now)
}

// TestEveryQuarantineEnds: whatever was counted or commanded, in any order and number, the ticks
// that the machine requests release everything in time, and make it usable.
func TestEveryQuarantineEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := admitted()
		for range rapid.IntRange(1, 80).Draw(t, "length") {
			p.now = p.now.Add(time.Duration(rapid.IntRange(0, 120).Draw(t, "seconds")) * time.Second)
			switch rapid.IntRange(0, 8).Draw(t, "what") {
			case 8: // another GPU than before has failed its measurement, or none
				p.measured(rapid.IntRange(0, 4).Draw(t, "bad"))
			case 7:
				gpus := make([]devices.GPU, 4)
				gpus[rapid.IntRange(0, 3).Draw(t, "gpu")].Fault = &devices.Fault{At: p.now.Add(-time.Duration(rapid.IntRange(0, 300).Draw(t, "ago")) * time.Second), Reason: "Xid 79"}
				p.step(events.NodeHello{Node: "node-a", Incarnation: "A", Slots: 4, GPUs: gpus}, p.now)
			case 0:
				p.step(events.NodeQuarantine{Node: "node-a", Slot: anySlot(t), For: spec.Duration(time.Hour)}, p.now)
			case 1:
				p.step(events.HeartbeatMissed{Node: "node-a", Incarnation: "A", Failed: true}, p.now)
			case 2:
				p.step(events.NodeHello{Node: "node-a", Incarnation: "A", Slots: 4}, p.now)
			default:
				p.step(anyCharge(t), p.now)
			}
			for _, b := range p.s.View.QuarantinedSlots {
				if b.Until.Sub(p.now) > time.Hour {
					t.Fatalf("slot %d is quarantined for %s", b.Slot, b.Until.Sub(p.now))
				}
			}
		}
		p.now = p.now.Add(time.Second)
		p.measured(-1)                   // until a GPU is measured better its slot is of no use
		last := p.now.Add(2 * time.Hour) // one more for what a GPU has shown during a quarantine
		for at := p.m.Deadline(p.s); !at.IsZero(); at = p.m.Deadline(p.s) {
			if at.After(last) {
				t.Fatalf("it lasts until %s, two hours from the last failure are %s", at, last)
			}
			p.now = later(p.now, at)
			if p.step(events.Tick{}, time.Time{}); p.m.Deadline(p.s).Equal(at) {
				t.Fatalf("the tick at its deadline %s changed nothing: %s", at, text(p.s.View))
			}
		}
		p.step(events.NodeHello{Node: "node-a", Incarnation: "A", Slots: 4}, p.now)
		if v := p.s.View; v.Quarantine != nil || len(v.QuarantinedSlots) > 0 || v.SchedulableSlots() != 4 {
			t.Fatalf("%d of 4 slots are open in the end: %s", v.SchedulableSlots(), text(v))
		}
	})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// TestReleasedSlotIsUsable at once, and it takes as many failures as before to quarantine it again.
func TestReleasedSlotIsUsable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := admitted()
		for range rapid.IntRange(0, 30).Draw(t, "before") {
			p.now = p.now.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "seconds")) * time.Second)
			p.step(anyCharge(t), p.now)
		}
		p.step(events.NodeRelease{Node: "node-a"}, p.now)
		if v := p.s.View; v.SchedulableSlots() != 4 {
			t.Fatalf("%d of 4 slots are open after the release: %s", v.SchedulableSlots(), text(v))
		}
		for i := range rules.Failures {
			if v := p.s.View; v.SchedulableSlots() != 4 {
				t.Fatalf("%d failures after the release %d of 4 slots are open: %s", i, v.SchedulableSlots(), text(v))
			}
			c := events.JobFailureCounted{Job: "demo-0001", Place: ident.Place{Node: "node-a", Slot: 2}, Worker: ident.Incarnation(fmt.Sprint("X", i)), Kind: events.FailureSignal}
			p.step(c, p.now)
		}
		if b := p.s.View.QuarantinedSlots; len(b) != 1 || b[0].Count != 1 || b[0].Until.Sub(p.now) != rules.First {
			t.Fatalf("the next quarantine is not the first: %s", text(b))
		}
	})
}

// TestOnlyFailuresWithinAWindowCount: however failures are spread and delivered, a slot is
// quarantined only if enough failures of different incarnations lie within one window.
func TestOnlyFailuresWithinAWindowCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := admitted()
		ended := map[ident.Incarnation]time.Time{}
		for range rapid.IntRange(1, 60).Draw(t, "length") {
			p.now = p.now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds")) * time.Second)
			worker := ident.Incarnation(fmt.Sprint("W", rapid.IntRange(0, 60).Draw(t, "life")))
			when := p.now.Add(-time.Duration(rapid.SampledFrom([]int{0, 0, 60, 500, 700}).Draw(t, "late")) * time.Second)
			if at, again := ended[worker]; again {
				when = at
			}
			ended[worker] = when
			d := p.step(events.JobFailureCounted{Job: "demo-0001", Place: ident.Place{Node: "node-a", Slot: 1}, Worker: worker, Kind: events.FailureSignal}, when)
			if len(d.Facts) == 0 {
				continue
			}
			near := 0
			for _, at := range ended {
				if p.now.Sub(at) < rules.Window {
					near++
				}
			}
			if q, ok := d.Facts[0].Body.(events.NodeQuarantined); ok && near < rules.Failures {
				t.Fatalf("quarantined for %q with %d failures within the window", q.Reason, near)
			}
		}
	})
}
