package explain

import (
	"fmt"

	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
)

// awaitedNodes describes which nodes a job with self-registering nodes waits for; "" if it waits
// for none.
func (s Seen) awaitedNodes() string {
	g := s.Round.Rendezvous
	if !s.Job.Spec.External() || (g != nil && g.Complete) {
		return ""
	}
	r := s.Job.Spec.Rendezvous
	here := 0
	if g != nil {
		here = g.Nodes
	}
	text := fmt.Sprintf("waits for nodes to come: %d of %d to %d are here", here, r.Nodes.Min, r.Nodes.Max)
	if g != nil && g.LastCall.After(s.Now) {
		text += "; the last call ends in " + screen.Span(g.LastCall.Sub(s.Now))
	}
	return text
}

// standby describes the spare nodes of such a job.
func (s Seen) standby() []string {
	g := s.Round.Rendezvous
	if g == nil {
		return nil
	}
	var out []string
	if g.Waiting > 0 {
		out = append(out, screen.Plural(g.Waiting, "node")+" to come in at a commit")
	}
	if g.Spares > 0 {
		out = append(out, screen.Plural(g.Spares, "spare node"))
	}
	if g.Closed {
		out = append(out, "no more nodes are taken in")
	}
	return out
}
