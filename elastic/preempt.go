package elastic

import (
	"context"
	"time"

	"github.com/regroup-io/regroup/elastic/internal/updates"
)

// PreemptionNotice says that this worker's node will be taken away.
type PreemptionNotice struct {
	Reason string
	Until  time.Time // when it will be gone at the latest; zero = unknown
}

// preempted handles a preemption notice: the next step tells all ranks that a commit is due,
// whatever interval the program uses, and the program's own callback is called.
//
// That is all it takes to leave: where something can take this worker's place a planned change
// follows, and Run returns after the commit that carries it.
func (r *runner) preempted(ctx context.Context, s *Session, n PreemptionNotice) {
	s.updates.Announce(updates.Preempted)
	if n == r.preemption {
		return // each generation gets it again
	}
	r.preemption = n
	r.options.Log.Info("this node will be taken away", "job", r.options.Job, "reason", n.Reason, "until", n.Until)
	if r.options.OnPreempt == nil {
		return
	}
	r.callbacks.Go(func() {
		until, cancel := ctx, context.CancelFunc(func() {})
		if !n.Until.IsZero() {
			until, cancel = context.WithDeadline(ctx, n.Until)
		}
		defer cancel()
		r.options.OnPreempt(until, n)
	})
}
