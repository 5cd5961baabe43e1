package liveness

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/ident"
)

var (
	h100 = devices.GPU{ID: "GPU-a", Model: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559}
	t4   = devices.GPU{ID: "GPU-b", Model: "Tesla T4", MemoryMiB: 15360}
)

// gpuNode is a node whose agent says hello.
type gpuNode struct {
	m Machine
	s State
}

// does applies an input and returns the GPUs of the facts that follow; nil = there is none.
func (n *gpuNode) does(b events.Body) (facts [][]devices.Slots) {
	var d events.Decision
	n.s, d = n.m.Step(n.s, events.Input{ID: "1", Body: b}, time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC))
	for _, f := range d.Facts {
		facts = append(facts, f.Body.(events.NodeEvent).Fact().GPUs)
	}
	return facts
}

func hello(slots int, of ...devices.GPU) events.NodeHello {
	return events.NodeHello{Node: "node-a", Incarnation: "A", Slots: slots, Address: "10.0.0.1", GPUs: of}
}

// TestFactsHaveTheGPUsOfSlots, equal ones in a row as one entry, and another hello leads to a fact
// only if it changes them.
func TestFactsHaveTheGPUsOfSlots(t *testing.T) {
	runs := func(all ...devices.Slots) [][]devices.Slots { return [][]devices.Slots{all} }
	of := func(count int, g devices.GPU) devices.Slots {
		return devices.Slots{Count: count, Model: g.Model, MemoryMiB: g.MemoryMiB}
	}
	slots := func(n int) events.HostEntry { return events.HostEntry{Node: "node-a", Slots: &n} }
	other := h100
	other.ID = "GPU-c"
	n := &gpuNode{s: Machine{}.New("node-a")}
	for i, c := range []struct {
		input events.Body
		want  [][]devices.Slots
	}{
		{hello(3, h100, h100, t4), runs(of(2, h100), of(1, t4))},
		{hello(3, h100, h100, t4), nil},
		{hello(3, h100, other, t4), nil}, // only its id is another
		{hello(3, h100, t4, t4), runs(of(1, h100), of(2, t4))},
		{events.HeartbeatMissed{Node: "node-a", Incarnation: "A"}, runs(of(1, h100), of(2, t4))},
		{hello(3, h100, t4, h100), runs(of(1, h100), of(1, t4), of(1, h100))},
		{slots(2), runs(of(1, h100), of(1, t4))},
		{hello(3, h100, t4, t4), nil}, // the slot that may not be used has another
		{slots(0), runs()},
		{slots(3), runs(of(1, h100), of(2, t4))},
		{hello(4, h100, h100, t4), runs()}, // slots have none of their own
		{hello(4, h100), nil},
		{hello(1, h100), runs(of(1, h100))},
		{hello(1), runs()},
		{hello(1), nil},
		{hello(0, h100), runs()}, // of one job
		{hello(1, devices.GPU{ID: "0"}), runs(of(1, devices.GPU{}))},
	} {
		// A hello may have several facts, which say the same of the GPUs.
		got := slices.CompactFunc(n.does(c.input), slices.Equal)
		if !slices.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("%d: after %+v facts have %+v, want %+v", i, c.input, got, c.want)
		}
	}
}

// TestGPUsOfAnotherIncarnation: what a fact says of the one that is replaced has nothing of the new
// one.
func TestGPUsOfAnotherIncarnation(t *testing.T) {
	n := &gpuNode{s: Machine{}.New("node-a")}
	n.does(hello(1, h100))
	next := hello(1, t4)
	next.Incarnation, next.Predecessors = "B", []ident.Incarnation{"A"}
	got := n.does(next)
	if len(got) != 2 || got[0][0].Model != h100.Model || got[1][0].Model != t4.Model {
		t.Errorf("the loss and the arrival have %+v", got)
	}
}

// TestGPUsOfDocumentsOfTheVersionBefore, whose facts had none: the next hello leads to one.
func TestGPUsOfDocumentsOfTheVersionBefore(t *testing.T) {
	n := &gpuNode{s: Machine{}.New("node-a")}
	n.does(hello(1, h100))
	raw, err := json.Marshal(n.s)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	delete(fields, "published_gpus")
	if raw, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	n.s = State{}
	if err := json.Unmarshal(raw, &n.s); err != nil {
		t.Fatal(err)
	}
	if len(n.s.View.GPUs) != 1 {
		t.Fatalf("the document has %+v", n.s.View)
	}
	if got := n.does(hello(1, h100)); len(got) != 1 || len(got[0]) != 1 || got[0][0].Model != h100.Model {
		t.Errorf("facts have %+v", got)
	}
	if got := n.does(hello(1, h100)); got != nil {
		t.Errorf("facts have %+v once more", got)
	}
}

// TestGPUsOfARebuiltNode: they are known from the facts at once, so that no fact before the next
// hello says that they are gone, and the hello brings their ids back. Facts of the version before
// have none; then the hello leads to a fact.
func TestGPUsOfARebuiltNode(t *testing.T) {
	for _, c := range []struct {
		published []devices.Slots
		facts     int // after the hello
	}{{[]devices.Slots{{Count: 2, Model: h100.Model, MemoryMiB: h100.MemoryMiB}}, 0}, {nil, 1}, {[]devices.Slots{{Count: 9}, {Count: -1}}, 1}} {
		n := &gpuNode{s: Machine{}.New("node-a")}
		n.s = n.m.Recall(n.s, events.Event{Body: events.NodeJoined{NodeFact: events.NodeFact{
			Node: "node-a", Incarnation: "A", Slots: 2, Address: "10.0.0.1", State: events.NodeStateReady, GPUs: c.published,
		}}}, time.Time{})
		if c.facts == 0 {
			if got := n.does(events.HeartbeatMissed{Node: "node-a", Incarnation: "A"}); len(got) != 1 || !slices.Equal(got[0], c.published) {
				t.Errorf("a fact before the hello has %+v, want %+v", got, c.published)
			}
			n.does(events.HeartbeatSeen{Heartbeat: events.Heartbeat{Node: "node-a", Incarnation: "A"}})
		}
		second := h100
		second.ID = "GPU-c"
		got := n.does(hello(2, h100, second))
		if len(got) != c.facts || !slices.Equal(n.s.View.GPUs, []devices.GPU{h100, second}) {
			t.Errorf("of %+v: after the hello the node has %+v, and facts %+v", c.published, n.s.View.GPUs, got)
		}
	}
}
