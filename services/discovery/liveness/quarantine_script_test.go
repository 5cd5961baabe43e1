package liveness_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
)

// quarantine parses the commands of quarantine and of the host list:
//
//	charge SLOT INCARNATION [job=J] [step=N] [kind=K] [by=U] [agent=A] [late=5m]
//	quarantine NODE[/SLOT] 10m [REASON...]      release NODE[/SLOT] [REASON...]
//	listed [SLOTS]      listed not WHY...
func (n *node) quarantine(t *testing.T, line string, in *events.Input) {
	t.Helper()
	w := strings.Fields(line)
	rest := func(i int) string { return strings.Join(w[min(i, len(w)):], " ") }
	var slot *ident.Slot
	if _, number, ok := strings.Cut(w[min(1, len(w)-1)], "/"); ok {
		slot = new(ident.Slot)
		if _, err := fmt.Sscan(number, slot); err != nil {
			t.Fatal(line, err)
		}
	}
	switch w[0] {
	case "charge":
		c := events.JobFailureCounted{
			Job: "demo-0001", Worker: ident.Incarnation(w[2]), Agent: n.s.View.Incarnation, Kind: events.FailureSignal, Detail: "killed by signal 9 (SIGKILL)",
			Place: ident.Place{Node: "node-a"},
		}
		if _, err := fmt.Sscan(w[1], &c.Place.Slot); err != nil {
			t.Fatal(line, err)
		}
		in.Time = n.now
		for _, arg := range w[3:] {
			name, value, _ := strings.Cut(arg, "=")
			var err error
			switch name {
			case "job":
				c.Job = ident.JobID(value)
			case "step":
				_, err = fmt.Sscan(value, &c.Step)
			case "kind":
				c.Kind = events.FailureKind(value)
			case "by":
				c.By = value
			case "agent":
				c.Agent = ident.Incarnation(value)
			case "late":
				var d time.Duration
				d, err = time.ParseDuration(value)
				in.Time = n.now.Add(-d)
			default:
				err = fmt.Errorf("unknown argument %s", arg)
			}
			if err != nil {
				t.Fatal(line, err)
			}
		}
		in.Body = c
	case "quarantine":
		d, err := time.ParseDuration(w[2])
		if err != nil {
			t.Fatal(line, err)
		}
		in.Body = events.NodeQuarantine{Node: "node-a", Slot: slot, For: spec.Duration(d), Reason: rest(3)}
	case "release":
		in.Body = events.NodeRelease{Node: "node-a", Slot: slot, Reason: rest(2)}
	case "listed":
		l := events.HostEntry{Node: "node-a"}
		if len(w) > 1 && w[1] == "not" {
			l.Excluded = rest(2)
		} else if len(w) > 1 {
			l.Slots = new(int)
			if _, err := fmt.Sscan(w[1], l.Slots); err != nil {
				t.Fatal(line, err)
			}
		}
		in.Body = l
	}
}

// about formats the slot that a fact is about, and the length of the quarantine.
func (n *node) about(b events.Body) string {
	of := func(s *ident.Slot) string {
		if s == nil {
			return " whole"
		}
		return fmt.Sprintf(" slot=%d", *s)
	}
	switch b := b.(type) {
	case events.NodeQuarantined:
		return fmt.Sprintf("%s for=%s count=%d", of(b.Slot), b.Until.Sub(n.now), b.Count)
	case events.NodeReleased:
		return of(b.Slot)
	}
	return ""
}

// attributes formats the attributes other than the state.
func (n *node) attributes() string {
	v, out := n.s.View, ""
	if v.Excluded != "" {
		out += ", excluded"
	}
	if v.Quarantine != nil {
		out += fmt.Sprintf(", quarantined for %s", v.Quarantine.Until.Sub(n.now))
	}
	for _, b := range v.QuarantinedSlots {
		out += fmt.Sprintf(", slot %d quarantined for %s", b.Slot, b.Until.Sub(n.now))
	}
	if out != "" {
		out += fmt.Sprintf(", %d open", v.SchedulableSlots())
	}
	return out
}
