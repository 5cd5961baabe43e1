package queue

import "time"

// stalled tells whether something is pending for too long that was not reported yet.
func (q *Queue) stalled(pending []*request) bool {
	for _, r := range pending {
		if q.late(r) {
			return true
		}
	}
	return false
}

func (q *Queue) late(r *request) bool {
	return q.opt.StallAfter > 0 && !r.reported && time.Since(r.since) > q.opt.StallAfter
}

// inspect gathers what every rank has pending, and reports what is late here.
func (q *Queue) inspect(pending []*request) error {
	var mine []entry
	for _, r := range pending {
		mine = append(mine, entry{r.name, ""})
	}
	blobs, err := q.opt.Comm.AllgatherBlobs(q.life, encodeEntries(mine))
	if err != nil {
		return err
	}
	have := make([]map[string]bool, len(blobs))
	for rank, b := range blobs {
		entries, err := decodeEntries(b)
		if err != nil {
			q.opt.Comm.Abort(err)
			return err
		}
		have[rank] = map[string]bool{}
		for _, e := range entries {
			have[rank][e.name] = true
		}
	}
	for _, r := range pending {
		if !q.late(r) {
			continue
		}
		r.reported = true
		s := Stall{Name: r.name, Pending: time.Since(r.since)}
		for rank := range have {
			if !have[rank][r.name] {
				s.Missing = append(s.Missing, rank)
			}
		}
		if q.opt.OnStall != nil {
			q.opt.OnStall(s)
		}
	}
	return nil
}

// watch reports, again and again, a cycle that takes too long: some rank has nothing
// pending at all, and is in none. The result ends the watch.
func (q *Queue) watch() (stop func()) {
	if q.opt.StallAfter <= 0 || q.opt.OnStall == nil {
		return func() {}
	}
	began, over := time.Now(), make(chan struct{})
	ended := make(chan struct{})
	t := time.NewTicker(q.opt.StallAfter)
	go func() {
		defer close(ended)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				q.opt.OnStall(Stall{Pending: time.Since(began), Missing: q.opt.Comm.Behind()})
			case <-over:
				return
			}
		}
	}()
	return func() {
		close(over)
		<-ended
	}
}
