package round

import (
	"fmt"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
)

// nodes returns the input for a command about self-registered nodes, or nil if it is none.
//
//	submit nodes=2:4 per=1 [recovery=restart] [join=600s] [lastcall=30s] [settle=200ms]   job.submitted
//	enter a [incarnation=A] [slots=N] [env=1]                              an agent registers
//	leave a [incarnation=A], close
func (r *rig) nodes(cmd string, node ident.NodeID, arg map[string]string, num func(string, int) int) events.Body {
	incarnation := ident.Incarnation(arg["incarnation"])
	if incarnation == "" {
		incarnation = "agent-1" // as in joins
	}
	switch cmd {
	case "submit":
		jobSpec := spec.Job{Name: "j", Command: []string{"x"}, Recovery: spec.RecoveryInProcess, Rendezvous: &spec.Rendezvous{WorkersPerNode: num("per", 1)}}
		if arg["recovery"] == "restart" {
			jobSpec.Recovery = spec.RecoveryRestart
		}
		x := jobSpec.Rendezvous
		_, _ = fmt.Sscanf(arg["nodes"], "%d:%d", &x.Nodes.Min, &x.Nodes.Max)
		for key, d := range map[string]*spec.Duration{"join": &x.JoinTimeout, "lastcall": &x.LastCallTimeout, "settle": &jobSpec.Elastic.Settle} {
			if v, err := time.ParseDuration(arg[key]); err == nil {
				*d = spec.Duration(v)
			}
		}
		r.spec = jobSpec.WithDefaults()
		return events.JobSubmitted{Job: "j-1", Spec: r.spec}
	case "enter":
		jobSpec := r.spec
		if v, ok := arg["env"]; ok {
			jobSpec.Env = map[string]string{"SEED": v}
		}
		if v, ok := arg["nodes"]; ok {
			x := *jobSpec.Rendezvous
			_, _ = fmt.Sscanf(v, "%d:%d", &x.Nodes.Min, &x.Nodes.Max)
			jobSpec.Rendezvous = &x
		}
		return events.NodeEnter{Job: "j-1", Node: node, Incarnation: incarnation, Slots: num("slots", 8), Spec: jobSpec}
	case "leave":
		return events.NodeExit{Job: "j-1", Node: node, Incarnation: incarnation, Reason: "it was interrupted"}
	case "close":
		return events.RendezvousClose{Job: "j-1", Reason: "enough"}
	}
	return nil
}

func showGathering(g events.RendezvousStatus) string {
	s := fmt.Sprintf("%d of %d to %d nodes", g.Nodes, g.Min, g.Max)
	if g.Complete {
		s += ", complete"
	}
	if g.LastCallMS > 0 {
		s += fmt.Sprintf(", last call %.0f s", g.LastCallMS/1000)
	}
	if g.Closed {
		s += ", closed"
	}
	return s
}

func showNodes(x *NodeRendezvous) string {
	s := fmt.Sprintf("round %d", x.Round)
	if x.Complete {
		s += " complete"
	}
	for _, l := range []candidateList{participant, waiting, spare} {
		if n := x.nodes(l); len(n) > 0 {
			s += fmt.Sprintf(", %s %v", l, n)
		}
	}
	if x.Closed != "" {
		s += ", closed"
	}
	return strings.TrimSpace(s)
}
