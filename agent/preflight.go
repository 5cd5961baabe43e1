package agent

import (
	"context"

	"github.com/regroup-io/regroup/events/figures"
)

// measure measures the GPUs of the node, which has no work before its first hello, and after what
// an earlier incarnation of the agent has left was killed. nil = that was not asked for, or the
// agent ends.
func (a *Agent) measure(work context.Context) *figures.Preflight {
	if a.opt.Preflight == nil {
		return nil
	}
	a.opt.Logger.Info("GPUs are measured before this node offers its slots", "node", a.opt.Node, "gpus", len(a.opt.GPUs))
	p := a.opt.Preflight(work)
	if work.Err() != nil {
		return nil
	}
	if p.Problem != "" {
		a.opt.Logger.Warn("GPUs were not measured: the node is used without that", "node", a.opt.Node, "reason", p.Problem)
	}
	for _, g := range p.GPUs {
		switch {
		case g.Failure != "":
			a.opt.Logger.Error("a GPU has failed", "node", a.opt.Node, "gpu", g.ID, "reason", g.Failure)
		case g.NotMeasured != "":
			a.opt.Logger.Warn("a GPU was not measured in all", "node", a.opt.Node, "gpu", g.ID, "reason", g.NotMeasured)
		}
	}
	if r := p.AllReduce; r != nil && r.Failure != "" {
		a.opt.Logger.Error("the GPUs of this node cannot reduce together", "node", a.opt.Node, "reason", r.Failure)
	}
	if len(a.opt.GPUs) != a.opt.Slots {
		a.opt.Logger.Warn("no slot is judged by its GPU: there are not as many", "node", a.opt.Node, "gpus", len(a.opt.GPUs), "slots", a.opt.Slots)
	}
	return &p
}
