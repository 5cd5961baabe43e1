package queue

import (
	"context"
	"time"

	"github.com/regroup-io/regroup/collective"
)

// run negotiates and carries out, until the queue is closed or the communicator fails.
func (q *Queue) run() {
	defer close(q.done)
	defer q.release()
	for {
		if len(q.snapshot()) == 0 {
			select {
			case <-q.wake:
			case <-q.life.Done():
				q.fail(context.Cause(q.life))
				return
			}
			q.pause(q.opt.Cycle)
			continue
		}
		found, err := q.cycle()
		if err != nil {
			q.fail(err)
			return
		}
		if !found {
			q.pause(fruitless)
		}
	}
}

func (q *Queue) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-q.life.Done():
	}
}

// Places in a vote. A rank says 1 where it agrees, and the least of all votes counts.
const (
	noNews    = iota // everything that is pending here is known
	noStall          // nothing is pending for too long
	firstName        // and from here on: this name is pending
)

// cycle tells whether anything was carried out.
func (q *Queue) cycle() (found bool, err error) {
	defer q.watch()()
	pending := q.snapshot()
	var news []entry
	q.vote = append(q.vote[:0], make([]byte, firstName+len(q.table.names))...)
	stalled := q.stalled(pending)
	for _, r := range pending {
		e := entry{r.name, r.kind}
		if id, ok := q.table.ids[e]; ok {
			q.vote[firstName+id] = 1
		} else {
			news = append(news, e)
		}
	}
	q.vote[noNews], q.vote[noStall] = agree(len(news) == 0), agree(!stalled)
	if err := collective.Allreduce(q.life, q.opt.Comm, q.vote, collective.Min); err != nil {
		return false, err
	}
	ready := q.ready(pending)
	if q.vote[noNews] == 0 {
		more, err := q.introduce(pending, news)
		if err != nil {
			return false, err
		}
		ready = append(ready, more...)
	}
	if q.vote[noStall] == 0 {
		if err := q.inspect(pending); err != nil {
			return false, err
		}
	}
	return len(ready) > 0, q.carryOut(ready)
}

func agree(yes bool) byte {
	if yes {
		return 1
	}
	return 0
}

// ready returns what is pending on all ranks, in the order of the table.
func (q *Queue) ready(pending []*request) (all []*request) {
	mine := make(map[entry]*request, len(pending))
	for _, r := range pending {
		mine[entry{r.name, r.kind}] = r
	}
	for id, yes := range q.vote[firstName:] {
		if yes == 1 {
			all = append(all, mine[q.table.names[id]])
		}
	}
	return all
}

// introduce gathers the names that are new to some rank. It returns what is pending on
// all ranks because of that.
func (q *Queue) introduce(pending []*request, news []entry) (ready []*request, err error) {
	blobs, err := q.opt.Comm.AllgatherBlobs(q.life, encodeEntries(news))
	if err != nil {
		return nil, err
	}
	all := make([][]entry, len(blobs))
	for i, b := range blobs {
		if all[i], err = decodeEntries(b); err != nil {
			q.opt.Comm.Abort(err)
			return nil, err
		}
	}
	before := len(q.table.names)
	mismatched := q.table.learn(all)
	if len(q.table.names) < before {
		before = 0
	}
	mine := make(map[string]*request, len(pending))
	for _, r := range pending {
		mine[r.name] = r
	}
	for _, m := range mismatched {
		r := mine[m.Name]
		q.take([]*request{r})
		r.handle.end(m)
	}
	for _, e := range q.table.names[before:] {
		ready = append(ready, mine[e.name])
	}
	return ready, nil
}

// carryOut runs what all ranks have.
func (q *Queue) carryOut(ready []*request) error {
	for _, group := range pack(ready, q.opt.ThresholdBytes) {
		var err error
		if len(group) == 1 {
			err = group[0].do(q.life)
		} else {
			err = q.together(q.life, group)
		}
		if failure := q.opt.Comm.Failed(); failure != nil {
			return failure
		}
		q.take(group)
		for _, r := range group {
			r.handle.end(err)
		}
	}
	return nil
}
