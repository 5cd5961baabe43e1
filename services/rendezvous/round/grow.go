package round

import (
	"time"

	"github.com/regroup-io/regroup/events"
)

// Growth is a planned change that takes newcomers in, while it waits for others that come at about the same time: several
// nodes that come within a moment cost one regroup. A loss never waits for it.
type Growth struct {
	By    time.Time    `json:"by"`
	Cause events.Cause `json:"cause"`
}

// grow asks for the planned change that takes newcomers in: at once if nobody else is about to be ready, else after
// elastic.settle. Horovod has no such window: there each of ten hosts that come together costs a reset.
func (t *turn) grow(c events.Cause) {
	if !t.open() && !t.Planned && t.Grow == nil { // who comes while a change is planned may still be in time for it
		t.Grow = &Growth{By: t.now.Add(t.Spec.Elastic.Settle.D()), Cause: c}
	}
}

// grown asks for the change when the newcomers have waited long enough.
func (t *turn) grown() {
	switch {
	case t.Grow == nil:
		return
	case t.Finishing || t.Stopping != nil:
		t.Grow = nil
		return
	case t.now.Before(t.Grow.By) && t.othersComing():
		return
	}
	c := t.Grow.Cause
	t.Grow = nil
	t.change(c)
}

// othersComing tells whether more newcomers may be ready in a moment. One that should have been for as long as a last call
// holds nobody up. Under restart recovery they join only once a round is open, and more places may be on their way.
func (t *turn) othersComing() bool {
	if t.restart() {
		return true
	}
	return t.now.Before(t.Fresh.Add(t.Spec.Elastic.LastCall.D())) && t.anyNewcomer()
}
