package liveness

import (
	"encoding/base64"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
)

// TestNodeFitsItsStore quarantines all the slots that a node may have, each with the longest reason
// allowed. The document and the facts must fit into their stores.
func TestNodeFitsItsStore(t *testing.T) {
	m, now := Machine{}, time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	s := m.New("node-a")
	step := func(b events.Body) events.Decision {
		t.Helper()
		var d events.Decision
		if s, d = m.Step(s, events.Input{ID: "1", Body: b}, now); d.Refusal != nil {
			t.Fatal(d.Refusal)
		}
		return d
	}
	step(events.NodeHello{Node: "node-a", Incarnation: "01A", Slots: limits.Slots.Max, Address: "10.0.0.1"})
	random := rand.New(rand.NewPCG(1, 2))
	var last events.Decision
	for i := range limits.Slots.Max {
		noise := make([]byte, limits.Text.Max*3/4)
		for k := range noise {
			noise[k] = byte(random.Uint32())
		}
		slot := ident.Slot(i)
		last = step(events.NodeQuarantine{Node: "node-a", Slot: &slot, For: spec.Duration(time.Hour), Reason: base64.StdEncoding.EncodeToString(noise)})
	}
	if n := len(s.View.QuarantinedSlots); n != limits.Slots.Max {
		t.Errorf("%d slots are out, want %d", n, limits.Slots.Max)
	}
	for _, f := range last.Facts {
		msg, err := cloudevent.Encode(events.Event{ID: "1", Source: "/test", Entity: "node-a", Time: now, Body: f.Body})
		if err != nil {
			t.Fatal(err)
		}
		if len(msg.Data) > limits.Message.Max*7/8 {
			t.Errorf("%s has %d bytes", f.Body.Type(), len(msg.Data))
		}
	}
}
