package queue

import "time"

// reportStalls reports what is late here, after a roll call.
func (q *Queue) reportStalls(pending []*request, rolls []roll) {
	for _, r := range pending {
		if !q.late(r) {
			continue
		}
		r.reported = true
		s := Stall{Name: r.name, Pending: time.Since(r.since)}
		for rank, said := range rolls {
			if !said.has(r.nameHash) && !said.joined {
				s.Missing = append(s.Missing, rank)
			}
		}
		if q.opt.OnStall != nil {
			q.opt.OnStall(s)
		}
	}
}

func (r roll) has(name int64) bool {
	for _, i := range r.items {
		if i.name == name {
			return true
		}
	}
	return false
}

// watch reports, again and again, a cycle that takes too long: some rank has nothing
// pending at all, and is in none. The result ends the watch.
func (q *Queue) watch() (stop func()) {
	if q.opt.StallAfter <= 0 || q.opt.OnStall == nil {
		return func() {}
	}
	began, missing := time.Now(), func() []int { return nil } // nobody knows until the ranks are connected
	if q.comm != nil {
		missing = q.comm.Behind
	}
	var t *time.Timer
	over := false
	q.mu.Lock()
	defer q.mu.Unlock()
	t = time.AfterFunc(q.opt.StallAfter, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if !over {
			q.opt.OnStall(Stall{Pending: time.Since(began), Missing: missing()})
			t.Reset(q.opt.StallAfter)
		}
	})
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		over = true
		t.Stop()
	}
}
