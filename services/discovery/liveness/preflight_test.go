package liveness_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/figures"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/services/discovery/liveness"
)

// measured parses the GPUs of a node: TFLOP/s, or fails.
//
//	gpus=650,fails,412
func measured(t *testing.T, node, list string, at time.Time) (gpus []devices.GPU, p *figures.Preflight) {
	t.Helper()
	p = &figures.Preflight{}
	for i, word := range strings.Split(list, ",") {
		g := figures.GPU{ID: fmt.Sprintf("GPU-%s-%d", node, i), Model: "H100", At: at}
		if word == "fails" {
			g.Failure = "wrong results"
		} else {
			var err error
			if g.MatmulTFLOPS, err = strconv.ParseFloat(word, 64); err != nil {
				t.Fatal(list, err)
			}
		}
		gpus, p.GPUs = append(gpus, devices.GPU{ID: g.ID, Model: g.Model}), append(p.GPUs, g)
	}
	return gpus, p
}

// measuredAt is when an incarnation has measured its GPUs: before its first hello.
func (n *node) measuredAt(inc ident.Incarnation) time.Time {
	if n.measured == nil {
		n.measured = map[ident.Incarnation]time.Time{}
	}
	if _, known := n.measured[inc]; !known {
		n.measured[inc] = n.now
	}
	return n.measured[inc]
}

// TestNewestFiguresAreKept: those of GPUs that the node has no more go, and an agent that cannot
// measure takes none away.
func TestNewestFiguresAreKept(t *testing.T) {
	m := liveness.Machine{Rules: rules}
	s := m.New("node-a")
	gpus, p := measured(t, "node-a", "650,fails", noon)
	hello := func(inc ident.Incarnation, gpus []devices.GPU, p *figures.Preflight) {
		t.Helper()
		before := s.View.Incarnation
		var d events.Decision
		s, d = m.Step(s, events.Input{Body: events.NodeHello{Node: "node-a", Incarnation: inc, Slots: 2, GPUs: gpus, Preflight: p, Predecessors: []ident.Incarnation{before}}}, noon)
		if d.Refusal != nil {
			t.Fatal(d.Refusal)
		}
	}
	hello("A", gpus, p)
	if k := s.View.Preflight; len(k.GPUs) != 2 || k.GPUs[1].Failure != "wrong results" || len(s.View.QuarantinedSlots) != 1 {
		t.Errorf("%s", text(s.View))
	}
	hello("B", gpus, &figures.Preflight{Problem: "no torch"})
	if k := s.View.Preflight; len(k.GPUs) != 2 || k.Problem != "no torch" || len(s.View.QuarantinedSlots) != 1 {
		t.Errorf("%s", text(s.View))
	}
	hello("C", gpus[:1], nil)
	if k := s.View.Preflight; len(k.GPUs) != 1 || k.Problem != "" {
		t.Errorf("%s", text(s.View))
	}
	hello("D", nil, nil)
	if s.View.Preflight != nil {
		t.Errorf("%s", text(s.View))
	}
}
