package sim

import (
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/registry"
	"github.com/regroup-io/regroup/services/registry/job"
)

// listener is the registry's state in the memory of one replica.
type listener struct {
	w    *world
	r    *replica
	ages job.StepTracker
}

func (l *listener) reset() { l.ages = registry.NewAges() }

func (l *listener) connected(is bool) { l.ages.Connected(is, l.w.now) }

func (l *listener) seen(key string, value []byte) {
	if value == nil {
		l.ages.Forget(events.JobID(key))
		return
	}
	if v, err := document.View[events.JobView](value); err == nil {
		if l.w.mutant.hasty {
			v.Spec.Health.Hang /= 3
		}
		l.ages.Update(v, l.w.now)
	}
}

func (l *listener) signal(b any) (events.Body, bool) {
	if p, ok := b.(events.Progress); ok {
		l.ages.Observe(p, l.w.now)
	}
	return nil, false
}

func (l *listener) poll() {
	l.w.after(registry.LookEvery, l.poll)
	if !l.r.up || l.r.isFrozen() {
		return
	}
	stalled, progressed := l.ages.Check(l.w.now)
	for _, p := range progressed {
		l.r.put(controller.InputItem(events.Input{Body: p}))
	}
	for _, s := range stalled {
		if l.w.mutant.hasty {
			s.For *= 3
		}
		l.r.put(controller.InputItem(events.Input{Body: s}))
	}
}

// progress broadcasts an agent's report of a worker's steps; each replica of the registry may miss
// it.
func (w *world) progress(p events.Progress) {
	for _, s := range w.services[events.ServiceRegistry] {
		if s.canReceive() && !s.isFrozen() && !w.chance(w.sc.loss) {
			s.signal(p)
		}
	}
}
