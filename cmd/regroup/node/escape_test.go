package node

import (
	"strings"
	"testing"
	"unicode"

	"github.com/regroup-io/regroup/cmd/regroup/internal/commandtest"
	"github.com/regroup-io/regroup/events"
)

// TestNoTextFromOutsideReachesTheTerminal checks that text from agents is escaped.
func TestNoTextFromOutsideReachesTheTerminal(t *testing.T) {
	const evil = "\x1b[2J\u009b31m\u202e\n"
	w := commandtest.New(t)
	w.Put(events.BucketNodes, "node-a", events.NodeView{
		Node: "node-a" + evil, State: events.NodeStateReady, Slots: 2, Address: "10.0.0.1" + evil, Version: "1.3" + evil, Reason: evil, Excluded: evil,
		Quarantine: &events.Quarantine{Reason: evil}, QuarantinedSlots: []events.QuarantinedSlot{{Slot: 1, Quarantine: events.Quarantine{Reason: evil}}},
	})
	for _, line := range []string{"ls", "ls -o wide", "ls -o json", "ls -o yaml"} {
		got := run(t, w, strings.Split(line, " ")...)
		if got.Exit != 0 || strings.ContainsFunc(got.Out+got.Err, func(r rune) bool { return unicode.IsControl(r) && r != '\n' || unicode.Is(unicode.Cf, r) }) {
			t.Errorf("%s: %q %q %v", line, got.Out, got.Err, got.Failure)
		}
		if line == "ls" && strings.Count(got.Out, "\n") != 2 {
			t.Errorf("a line end in a name makes rows: %q", got.Out)
		}
	}
}
