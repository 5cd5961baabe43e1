package rendezvous

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/rendezvous/round"
)

// TestRoundFitsItsStore lets thousands of nodes join and leave a job, each with the longest texts
// allowed.
func TestRoundFitsItsStore(t *testing.T) {
	n := 0
	tr, err := controller.NewProcessor(controller.Options[round.State]{
		Service: events.ServiceRendezvous, Machine: round.Machine{}, Bucket: events.BucketRounds, Ports: memory.New().Ports(),
		NewID: func() string { n++; return fmt.Sprint(n) },
	})
	if err != nil {
		t.Fatal(err)
	}
	spec := spec.Job{
		Name: "demo", Command: []string{"x"}, Rendezvous: &spec.Rendezvous{Nodes: spec.NodeRange{Min: 2000, Max: 4000}, WorkersPerNode: 1},
	}.WithDefaults()
	var inputs []events.Input
	process := func() {
		t.Helper()
		out, err := tr.Process(t.Context(), "demo-0000", inputs, time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC))
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range out.Inputs {
			if a.Refusal != nil {
				t.Fatal(a.Refusal)
			}
		}
		inputs = nil
	}
	say := func(b events.Body) {
		n++
		inputs = append(inputs, events.Input{ID: fmt.Sprint("in-", n), Source: "/test", Body: b})
	}
	say(events.JobSubmitted{Job: "demo-0000", Spec: spec})
	process()
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 1600 {
		noise := make([]byte, 750)
		for k := range noise {
			noise[k] = byte(random.Uint32())
		}
		node, incarnation := ident.NodeID(fmt.Sprintf("node-%d", i)), ident.Incarnation(fmt.Sprintf("01%024d", i))
		say(events.NodeEnter{Job: "demo-0000", Node: node, Incarnation: incarnation, Slots: 1, Spec: spec})
		say(events.NodeExit{Job: "demo-0000", Node: node, Incarnation: incarnation, Reason: base64.StdEncoding.EncodeToString(noise)})
		if i%64 == 0 {
			process()
		}
	}
	process()
	s, ok := tr.State("demo-0000")
	if !ok || len(s.Nodes.Removed) != 1600 {
		t.Errorf("%d nodes are remembered as out, want 1600", len(s.Nodes.Removed))
	}
}
