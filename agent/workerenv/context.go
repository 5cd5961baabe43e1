package workerenv

import (
	"slices"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// Context is the GPU on which a spare has started CUDA. CUDA reads which GPUs it may see when it
// starts, so that a spare can become only a worker that sees the same.
type Context struct {
	Visible []string // NAME=VALUE of the variables that hide GPUs
	Device  int      // number of the GPU among those that are visible
}

// Equal reports whether a spare with one context can become a worker that needs the other.
func (c Context) Equal(d Context) bool {
	return c.Device == d.Device && slices.Equal(c.Visible, d.Visible)
}

// Context returns the GPU of a worker: what it sees, and the number that its program takes, which
// is the local rank.
func (h Host) Context(l events.Launch, m events.LaunchMember) (x Context) {
	p := Process{}
	if l.Spec.Recovery != spec.RecoveryInProcess {
		p.Generation = 1 // one that has ranks
	}
	env, _ := h.Variables(l, m, p)
	for _, name := range visibleDevices {
		if v, ok := env[name]; ok {
			x.Visible = append(x.Visible, name+"="+v)
		}
	}
	one := l.Spec.Processes.VirtualLocalRank && p.Generation != 0
	if gpus := h.gpusOf(l, m, one); gpus != nil {
		x.Device = max(0, slices.Index(gpus, h.GPUs[m.Place.Slot]))
	} else if !one {
		x.Device = max(0, slices.IndexFunc(l.Members, func(o events.LaunchMember) bool { return o.Place == m.Place }))
	}
	return x
}
