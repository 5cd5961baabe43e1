package elastic

import (
	"context"
	"time"
)

// Notice says that this worker's node will be taken away.
type Notice struct {
	Reason string
	Until  time.Time // when it is gone at the latest; zero = not known
}

// notice takes the agent's word that the node will go: the next step tells all ranks that a commit is due, whatever their
// program's interval is, and the program's own callback is called.
//
// Nothing else has to be done to leave in order: where something can take this worker's place a planned change follows, and Run returns nil after
// the commit that carries it.
func (r *runner) notice(ctx context.Context, s *Session, n Notice) {
	s.news.announce(newsLeaving)
	if n == r.noticed {
		return // it is said again in each generation
	}
	r.noticed = n
	r.options.Log.Info("this node will be taken away", "job", r.options.Job, "reason", n.Reason, "until", n.Until)
	if r.options.OnPreempt == nil {
		return
	}
	r.callbacks.Go(func() {
		if n.Until.IsZero() {
			r.options.OnPreempt(ctx, n)
			return
		}
		until, cancel := context.WithDeadline(ctx, n.Until)
		defer cancel()
		r.options.OnPreempt(until, n)
	})
}
