package queue

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/regroup-io/regroup/collective"
)

// StallError is why a rank has aborted the communicator: an operation had waited for as long as
// Options.StallLimit says for ranks that did not submit it. It is a collective.ErrAborted.
type StallError struct {
	Name  string
	Limit time.Duration
}

func (e *StallError) Error() string {
	return fmt.Sprintf("the operation %q has waited for %s, the limit, for ranks that have not started it", e.Name, e.Limit)
}

// Unwrap makes it a collective.ErrAborted.
func (*StallError) Unwrap() error { return collective.ErrAborted }

// markBegun records that requests do not wait for other ranks any more.
func (q *Queue) markBegun(ready []*request) {
	if q.opt.StallLimit <= 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range ready {
		r.begun = true
		if r.limit != nil {
			r.limit.Stop()
		}
	}
}

// abortStalled ends everything on all ranks if a request still waits for some of them.
func (q *Queue) abortStalled(r *request) {
	q.mu.Lock()
	synchronous := q.pending[r.name] == r && !r.begun
	q.mu.Unlock()
	if !synchronous {
		return
	}
	err := &StallError{Name: r.name, Limit: q.opt.StallLimit}
	c := cmp.Or(q.opened.Load(), q.opt.Comm)
	if c == nil { // the ranks are not connected yet
		q.cancel(err)
		return
	}
	c.Abort(err)
}

// reportStalls reports stalled requests of this rank, after a negotiation.
func (q *Queue) reportStalls(pending []*request, lists []requestList) {
	for _, r := range pending {
		if !q.stalled(r) {
			continue
		}
		r.reported = true
		s := Stall{Name: r.name, Pending: time.Since(r.since)}
		for rank, list := range lists {
			if !list.has(r.nameHash) && !list.joined {
				s.Missing = append(s.Missing, rank)
			}
		}
		if q.opt.OnStall != nil {
			q.opt.OnStall(s)
		}
	}
}

func (r requestList) has(name int64) bool {
	return slices.ContainsFunc(r.items, func(i requestID) bool { return i.name == name })
}

// reportSlowCycle reports a cycle that takes too long, repeatedly: some rank has nothing pending at
// all and runs no cycle. The result ends the reports.
func (q *Queue) reportSlowCycle() (stop func()) {
	if q.opt.StallAfter <= 0 || q.opt.OnStall == nil {
		return func() {}
	}
	// unknown until the ranks are connected
	began, missing := time.Now(), func() []int { return nil }
	if q.comm != nil {
		missing = q.comm.Stragglers
	}
	var t *time.Timer
	ended := false
	q.mu.Lock()
	defer q.mu.Unlock()
	t = time.AfterFunc(q.opt.StallAfter, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if !ended {
			q.opt.OnStall(Stall{Pending: time.Since(began), Missing: missing()})
			t.Reset(q.opt.StallAfter)
		}
	})
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		ended = true
		t.Stop()
	}
}
