package agent

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/regroup-io/regroup/agent/meter"
	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/usage"
)

// usageEvery is how often what is used is measured: to look at a thousand processes takes some ten
// milliseconds.
const usageEvery = 5 * time.Second

// reportUsage says what the machine and its workers use, for those who look at it now. Where that
// cannot be read it says nothing.
func (a *Agent) reportUsage(work context.Context) {
	m := meter.New("/proc")
	t := time.NewTicker(usageEvery)
	defer t.Stop()
	for {
		here := a.snapshot.Load().workers
		var pids []int
		for _, w := range here {
			if w.PID > 0 {
				pids = append(pids, w.PID)
			}
		}
		if r, ok := m.Read(time.Now(), pids); ok {
			a.send(usage.Subject(a.opt.Node), a.usage(r, here))
		}
		select {
		case <-t.C:
		case <-work.Done():
			return
		}
	}
}

func (a *Agent) usage(r meter.Reading, here map[ident.Incarnation]worker.Worker) usage.Node {
	u := usage.Node{Node: a.opt.Node, Incarnation: a.opt.Incarnation, Machine: r.Machine, Processors: r.Processors, Memory: r.Memory}
	for _, w := range here {
		if of, lives := r.Workers[w.PID]; lives {
			u.Workers = append(u.Workers, usage.Worker{Job: w.Job, Place: w.Place, PID: w.PID, Of: of})
		}
	}
	slices.SortFunc(u.Workers, func(a, b usage.Worker) int { return cmp.Compare(a.Place.Slot, b.Place.Slot) })
	return u
}
