package serve

import (
	"context"

	"github.com/regroup-io/regroup/agent/preflight"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/figures"
)

// measureOnce measures the GPUs of a node for the first incarnation of its agent; later ones have
// the same figures. These do not run at the same time.
type measureOnce struct{ found *figures.Preflight }

// of returns what an agent calls before it offers slots; nil = it is not asked for.
func (m *measureOnce) of(a AgentConfig, o agentOptions, gpus []devices.GPU) (func(context.Context) figures.Preflight, error) {
	const flag = "--preflight (REGROUP_AGENT_PREFLIGHT)"
	switch {
	case !a.Preflight:
		return nil, nil
	case o.join != nil:
		return nil, errcode.Errorf(errcode.Invalid, "%s: an agent of a single job offers no slots; measure its GPUs with regroup doctor --gpu", flag)
	case a.GPUs == "":
		return nil, errcode.Errorf(errcode.Invalid, "%s: no slot has a GPU of its own here unless they are given out: --gpus auto (REGROUP_AGENT_GPUS)", flag)
	}
	return func(ctx context.Context) figures.Preflight {
		if m.found == nil {
			r := preflight.Run(ctx, preflight.Python(a.PreflightPython), gpus).Preflight
			if ctx.Err() != nil {
				return r
			}
			m.found = &r
		}
		return *m.found
	}, nil
}
