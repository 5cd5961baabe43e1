package liveness_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/figures"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/golden"
	"github.com/regroup-io/regroup/services/controller/controllertest"
	"github.com/regroup-io/regroup/services/discovery/liveness"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// TestScripts runs testdata/*.txt: commands, a line of dashes, and the expected output.
func TestScripts(t *testing.T) {
	golden.Scripts(t, func(t *testing.T, script string) string {
		n := &node{m: liveness.Machine{KeepFor: 24 * time.Hour, Rules: rules, Lease: liveness.Lease{Restart: 3 * time.Second, InPlace: time.Minute}}, now: noon}
		n.s = n.m.New("node-a")
		return golden.Blocks(script, func(line string) string { return n.do(t, line) })
	})
}

// rules are the default rules.
var rules = liveness.Rules{Failures: 3, Losses: 3, Window: 10 * time.Minute, First: time.Minute, Max: time.Hour, Decay: time.Hour, Share: 0.5}

type node struct {
	m   liveness.Machine
	s   liveness.State
	now time.Time
	// What is known of other nodes; nil = nothing.
	others *liveness.Fleet
	// When incarnations have measured their GPUs.
	measured map[ident.Incarnation]time.Time
}

func (n *node) do(t *testing.T, line string) string {
	t.Helper()
	w := strings.Fields(line)
	arg := func(i int) string {
		if i < len(w) {
			return w[i]
		}
		return ""
	}
	var in events.Input
	switch w[0] {
	case "hello":
		slots := 2
		if n, ok := word(line, "slots="); ok {
			var err error
			if slots, err = strconv.Atoi(n); err != nil {
				t.Fatal(line, err)
			}
		}
		hello := events.NodeHello{Node: "node-a", Incarnation: ident.Incarnation(arg(1)), Slots: slots, Address: "10.0.0.1", Link: via(line)}
		if why, ok := word(line, "departing="); ok {
			hello.Departing = &events.Departure{Reason: why}
		}
		switch old, ok := word(line, "predecessor="); {
		case ok:
			hello.Predecessors = []ident.Incarnation{ident.Incarnation(old)}
		case !slices.Contains(w, "stranger"): // it has the state folder of the one before
			hello.Predecessors = []ident.Incarnation{n.s.View.Incarnation}
		}
		if list, ok := word(line, "gpus="); ok {
			hello.GPUs, hello.Preflight = measured(t, "node-a", list, n.measuredAt(hello.Incarnation))
		}
		if before, ok := word(line, "silent="); ok { // the incarnation that it replaces
			d, err := time.ParseDuration(before)
			if err != nil {
				t.Fatal(line, err)
			}
			hello.Silence = d
		}
		if gpus := faulty(t, line, slots); gpus != nil {
			hello.GPUs = gpus
		}
		in.Body = hello
	case "bye":
		in.Body = events.NodeLeave{Node: "node-a", Incarnation: ident.Incarnation(arg(1)), Reason: strings.Join(w[min(2, len(w)):], " ")}
	case "drain":
		in.Body = events.NodeDrain{Node: "node-a", Reason: strings.Join(w[1:], " ")}
	case "undrain":
		in.Body = events.NodeDrain{Node: "node-a", Undo: true}
	case "silence", "unanswered":
		inc := n.s.View.Incarnation // unless the line names another
		if arg(1) != "" {
			inc = ident.Incarnation(arg(1))
		}
		missed := events.HeartbeatMissed{Node: "node-a", Incarnation: inc, Failed: w[0] == "unanswered"}
		if after, ok := word(line, "after="); ok {
			d, err := time.ParseDuration(after)
			if err != nil {
				t.Fatal(line, err)
			}
			missed.Silence = spec.Duration(d)
		}
		missed.Unheard = slices.Contains(w, "unheard")
		in.Body = missed
	case "heard":
		in.Body = events.HeartbeatSeen{Heartbeat: events.Heartbeat{Node: "node-a", Incarnation: ident.Incarnation(arg(1)), Link: via(line)}}
	case "charge", "quarantine", "release", "listed":
		n.quarantine(t, line, &in)
	case "others": // the slots of other nodes, and by whom jobs fail there now
		n.others = &liveness.Fleet{}
		for key, value := range map[string]*int{"slots=": &n.others.Slots, "open=": &n.others.Open} {
			if text, ok := word(line, key); ok {
				var err error
				if *value, err = strconv.Atoi(text); err != nil {
					t.Fatal(line, err)
				}
			}
		}
		if list, ok := word(line, "gpus="); ok {
			_, p := measured(t, "node-b", list, n.now)
			n.others.Measured = [][]figures.GPU{p.GPUs}
		}
		if by, ok := word(line, "by="); ok {
			n.others.Failures = []liveness.Failure{{At: n.now, Job: "elsewhere-0001", By: by}}
		}
		return ""
	case "clock": // the clock jumps
		d, err := time.ParseDuration(arg(1))
		if err != nil {
			t.Fatal(line, err)
		}
		n.now = n.now.Add(d)
		return ""
	case "cut":
		in.Body = events.Disconnected{Node: "node-a", Incarnation: ident.Incarnation(arg(1)), Link: via(line)}
	case "wait":
		d, err := time.ParseDuration(arg(1))
		if err != nil {
			t.Fatal(line, err)
		}
		n.now = n.now.Add(d)
		in.Body = events.Tick{}
	default:
		t.Fatalf("unknown command %q", line)
	}
	if n.others != nil {
		in.Others = func() any { return liveness.Known{Fleet: func() liveness.Fleet { return *n.others }} }
	}
	s, d := n.m.Step(controllertest.Reload(t, n.s), in, n.now)
	n.s = s
	return n.print(d)
}

// via returns the connection that a line names: via=2 is the second one of an agent's incarnation.
func via(line string) broker.Link {
	w, ok := word(line, "via=")
	count, err := strconv.ParseUint(w, 10, 64)
	if !ok || err != nil {
		return broker.Link{}
	}
	return link(count)
}

// word returns the word after a key on a line.
func word(line, key string) (string, bool) {
	for _, w := range strings.Fields(line) {
		if v, ok := strings.CutPrefix(w, key); ok {
			return v, true
		}
	}
	return "", false
}

func (n *node) print(d events.Decision) string {
	var b strings.Builder
	for _, f := range d.Facts {
		nf := factOf(f.Body)
		flags := n.about(f.Body)
		if nf.Disconnected {
			flags += " disconnected"
		}
		if nf.Departing {
			flags += " departing"
		}
		if _, ok := f.Body.(events.NodeJoined); ok && len(nf.LeftIncarnations) > 0 {
			flags += fmt.Sprint(" parted=", nf.LeftIncarnations)
		}
		if l, ok := f.Body.(events.NodeLost); ok && l.SilentMS > 0 {
			flags += fmt.Sprintf(" silent=%gms", l.SilentMS)
		}
		fmt.Fprintf(&b, "node.%s %s slots=%d%s: %s\n", f.Body.Type().Kind(), nf.Incarnation, nf.Slots, flags, nf.Reason)
	}
	for _, s := range d.Spans {
		fmt.Fprintf(&b, "span %s: %s\n", s.Name, s.Error)
	}
	if d.Refusal != nil {
		fmt.Fprintf(&b, "refused (%s): %v\n", errcode.Of(d.Refusal), d.Refusal)
	}
	if d.Forget {
		b.WriteString("forgotten\n")
	}
	if b.Len() == 0 {
		b.WriteString("nothing to tell\n")
	}
	v := n.s.View
	state := string(v.State)
	if state == "" {
		state = "unknown"
	}
	if v.Disconnected {
		state += ", disconnected"
	}
	if v.Draining {
		state += ", draining"
	}
	if e := v.LeaseEnds; !e.IsZero() {
		state += fmt.Sprintf(", lease ends in %s, in place in %s", e.Restart.Sub(n.now), e.InPlace.Sub(n.now))
	}
	fmt.Fprintf(&b, "= %s%s\n", state, n.attributes())
	return b.String()
}
