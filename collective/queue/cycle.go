package queue

import (
	"context"
	"encoding/json"
	"time"
)

func (q *Queue) run() {
	defer close(q.done)
	defer func() {
		q.fail(context.Cause(q.ctx))
		q.cycleLock <- struct{}{} // kept for good: no cycle runs any more
	}()
	for {
		if !q.hasWork() {
			select {
			case <-q.wake:
			case <-q.ctx.Done():
				return
			}
			q.pause(q.opt.Cycle, q.urgent)
			continue
		}
		select {
		case q.cycleLock <- struct{}{}:
		case <-q.ctx.Done():
			return
		}
		ended := q.hasWork() && q.step()
		<-q.cycleLock
		if !ended {
			q.pause(idleDelay, nil)
		}
	}
}

// driveCycles runs cycles until an operation is over, on the goroutine that waits for it, unless
// another goroutine runs them already.
func (q *Queue) driveCycles(h *Handle) {
	defer func() {
		if q.hasWork() {
			q.mu.Lock()
			q.wakeUp()
			q.mu.Unlock()
		}
	}()
	for {
		select {
		case <-h.done:
			return
		default:
		}
		select {
		case <-h.done:
			return
		case q.cycleLock <- struct{}{}:
		}
		ended := q.hasWork() && q.step()
		<-q.cycleLock
		if !ended {
			select {
			case <-h.done:
			case <-time.After(idleDelay):
			}
		}
	}
}

// step runs one cycle. The caller holds cycleLock. It reports whether any operation ended.
func (q *Queue) step() bool {
	err := q.open()
	ended := false
	if err == nil {
		ended, err = q.cycle()
	}
	if err != nil {
		q.fail(err)
		return true
	}
	return ended
}

// open connects the communicator if that has not been done.
func (q *Queue) open() (err error) {
	if q.comm == nil {
		defer q.reportSlowCycle()()
		q.comm, err = q.opt.Open(q.ctx)
		q.opened.Store(q.comm)
	}
	return err
}

// hasWork reports whether there is a reason for a cycle.
func (q *Queue) hasWork() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.order) > 0 || q.join != nil
}

// pause waits for a time, or until a waiter is urgent.
func (q *Queue) pause(d time.Duration, urgent <-chan struct{}) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-urgent:
	case <-q.ctx.Done():
	}
}

// cycle runs one cycle and reports whether any operation ended.
func (q *Queue) cycle() (ended bool, err error) {
	defer q.reportSlowCycle()()
	pending, join, blocked := q.snapshot()
	q.cycles++
	if join != nil && q.joined == 0 {
		q.joined = q.cycles
	}
	q.fillVote(pending, join != nil, blocked)
	q.opt.Observe(Event{Phase: CycleBegan})
	if err := q.exchangeVotes(); err != nil {
		return false, err
	}
	someJoined := q.vote[noneJoined] == 0
	common := 0 // operations that all ranks have
	var ready []*request
	if q.vote[allJoined] == 0 {
		hashes := q.commonHashes()
		ready, common = byHashes(pending, hashes), len(hashes)
	}
	if common == 0 && q.needsNegotiation() {
		lists, err := q.negotiate(pending, join != nil)
		if err != nil {
			return false, err
		}
		items, differing := compare(lists)
		hashes := make([]int64, len(items))
		for i, item := range items {
			hashes[i] = item.nameSpec
		}
		ready, common = byHashes(pending, hashes), len(hashes)
		if err := q.endUnready(pending, join, lists, differing, common); err != nil {
			return false, err
		}
		ended = len(differing) > 0
	}
	if common > 0 {
		ended = true
		if someJoined {
			ready, err = q.completeJoined(ready, join != nil)
			if err != nil {
				return false, err
			}
		}
		if err := q.execute(ready); err != nil {
			return false, err
		}
	}
	if q.vote[allJoined] == 1 && common == 0 {
		return true, q.endJoin(join)
	}
	return ended, nil
}

// needsNegotiation reports, the same on all ranks, whether the vote has left something open.
func (q *Queue) needsNegotiation() bool {
	v := q.vote
	return v[allNegotiated] == 0 || v[noneStalled] == 0 || v[allBlocked] == 1
}

// byHashes returns the requests with these hashes, in their order. A rank that has joined lacks
// some.
func byHashes(pending []*request, hashes []int64) (all []*request) {
	by := make(map[int64]*request, len(pending))
	for _, r := range pending {
		by[r.nameSpecHash] = r
	}
	for _, h := range hashes {
		if r := by[h]; r != nil {
			all = append(all, r)
		}
	}
	return all
}

// endUnready ends operations that differ between ranks, reports stalls, and ends a deadlock. ready
// is the number of operations that the negotiation found ready.
func (q *Queue) endUnready(pending []*request, join *Handle, lists []requestList, differing []int64, ready int) error {
	for _, name := range differing {
		if err := q.mismatch(pending, name); err != nil {
			return err
		}
	}
	if q.vote[noneStalled] == 0 {
		q.reportStalls(pending, lists)
	}
	if q.vote[allBlocked] == 1 && q.vote[allJoined] == 0 && ready == 0 && len(differing) == 0 {
		return q.deadlock(pending, join)
	}
	return nil
}

// mismatch ends the operations of a name that differ between ranks.
func (q *Queue) mismatch(pending []*request, name int64) error {
	var mine *request
	text := ""
	for _, r := range pending {
		if r.nameHash == name {
			mine, text = r, r.spec.String()
		}
	}
	kinds, err := q.texts(text)
	if err != nil || mine == nil {
		return err
	}
	q.end(&MismatchError{Name: mine.name, Kinds: kinds}, mine)
	return nil
}

// deadlock ends everything that is pending, on all ranks.
func (q *Queue) deadlock(pending []*request, join *Handle) error {
	q.mu.Lock()
	on, text := q.blocked.on, "nothing"
	q.mu.Unlock()
	for _, r := range pending {
		if r.handle == on {
			text = r.name + ": " + r.spec.String()
		}
	}
	if join != nil && on == join {
		text = "join"
	}
	waiting, err := q.texts(text)
	if err != nil {
		return err
	}
	failure := &DeadlockError{Waiting: waiting}
	q.deadlocks.Add(1)
	q.end(failure, pending...)
	if join != nil {
		q.mu.Lock()
		q.join, q.joined = nil, 0
		q.mu.Unlock()
		join.end(failure)
	}
	return nil
}

// end ends requests, executed or not.
func (q *Queue) end(err error, all ...*request) {
	q.mu.Lock()
	q.removeAll(all)
	q.mu.Unlock()
	for _, r := range all {
		q.opt.Observe(Event{Phase: Ended, Name: r.name, Method: r.spec.Method})
		r.handle.end(err)
	}
}

// execute runs operations that all ranks have.
func (q *Queue) execute(ready []*request) error {
	q.markBegun(ready)
	for _, group := range fuseGroups(ready, q.opt.ThresholdBytes) {
		for _, r := range group {
			q.opt.Observe(Event{Phase: Began, Name: r.name, Method: r.spec.Method, Packed: len(group)})
		}
		var err error
		if len(group) == 1 {
			err = group[0].do(q.ctx)
		} else {
			err = q.executeFused(q.ctx, group)
		}
		if failure := q.comm.Failed(); failure != nil {
			return failure
		}
		q.end(err, group...)
	}
	return nil
}

// completeJoined adds operations that this rank lacks because it has joined, and ends those that
// cannot be executed without the ranks that have joined.
func (q *Queue) completeJoined(ready []*request, joined bool) ([]*request, error) {
	type item struct {
		Name string
		Spec Spec
	}
	mine := []byte(nil)
	if !joined {
		all := make([]item, len(ready))
		for i, r := range ready {
			all[i] = item{r.name, r.spec}
		}
		mine, _ = json.Marshal(all) // cannot fail: strings and numbers only
	}
	blobs, err := q.comm.AllgatherBlobs(q.ctx, mine)
	if err != nil {
		return nil, err
	}
	var all []item
	var absent []int
	for rank, b := range blobs {
		switch {
		case len(b) == 0:
			absent = append(absent, rank)
		case all == nil:
			if err := json.Unmarshal(b, &all); err != nil {
				q.comm.Abort(err)
				return nil, err
			}
		}
	}
	by := make(map[string]*request, len(ready))
	for _, r := range ready {
		by[r.name] = r
	}
	var able []*request
	for _, item := range all {
		r := by[item.Name]
		possible := item.Spec.Method == Allreduce || item.Spec.Method == Barrier
		switch {
		case possible && r != nil:
			able = append(able, r)
		case possible:
			able = append(able, q.identityRequest(item.Name, item.Spec))
		case r != nil:
			q.end(&JoinedError{Name: item.Name, What: item.Spec.Method.String(), Ranks: absent}, r)
		}
	}
	return able, nil
}

// identityRequest is what a rank that has joined executes in place of an operation of the others.
func (q *Queue) identityRequest(name string, s Spec) *request {
	r := &request{name: name, spec: s, handle: newHandle(q)}
	if s.Method == Barrier {
		r.do = q.barrier
		return r
	}
	element := identityElement(s.Type, s.Op)
	data := make([]byte, 0, s.Count*len(element))
	for range s.Count {
		data = append(data, element...)
	}
	r.tensor.Type, r.tensor.Data = s.Type, data
	r.do = func(ctx context.Context) error { return q.allreduce(ctx, s, r.tensor) }
	return r
}

func (q *Queue) endJoin(join *Handle) error {
	blobs, err := q.texts(string(encodeRequestList(requestList{items: []requestID{{q.joined, 0}}})))
	if err != nil {
		return err
	}
	var latest int64
	for rank, b := range blobs {
		r, err := decodeRequestList([]byte(b))
		if err != nil || len(r.items) != 1 {
			q.comm.Abort(errRequestList)
			return errRequestList
		}
		if r.items[0].name >= latest {
			latest, join.last = r.items[0].name, rank
		}
	}
	q.joined = 0
	q.mu.Lock()
	q.join = nil
	q.mu.Unlock()
	join.end(nil)
	return nil
}
