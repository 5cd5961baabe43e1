package collective

import (
	"time"

	"github.com/regroup-io/regroup/collective/schedule"
)

// double carries the plan out on two threads: the caller receives and combines, the
// second one sends; each waits for the other where the plan says so. For volumes that
// keep both busy, and for wires that cannot be polled.
func (x *execution) double() error {
	for _, ch := range []chan struct{}{x.sentMore, x.gotMore} {
		select {
		case <-ch: // left over from the operation before
		default:
		}
	}
	x.c.watchNow()
	second := len(x.plan.Sends) > 0
	if second {
		x.c.startSender()
		x.outgoing <- struct{}{}
	}
	err := x.receiveAll()
	if second {
		// It never outlives the operation: it reads the caller's memory.
		if failed := <-x.outDone; err == nil {
			err = failed
		}
	}
	return err
}

// startSender starts the second thread when it is needed first.
func (c *Communicator) startSender() {
	if c.sender {
		return
	}
	c.sender = true
	c.tasks.Go(func() {
		for range c.work.outgoing {
			c.work.outDone <- c.work.sendAll()
		}
	})
}

func (x *execution) sendAll() error {
	for i, t := range x.plan.Sends {
		for x.got.Load() < int64(t.After) {
			select {
			case <-x.gotMore:
			case <-x.c.life.Done():
				return x.c.ended()
			}
		}
		w := x.message(i)
		if err := w.write(x.sendHead[:], x.sendBody); err != nil {
			return x.broken(x.to.rank, err)
		}
		x.sent.Add(1)
		notify(x.sentMore)
	}
	return nil
}

func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (x *execution) receiveAll() error {
	for i, t := range x.plan.Recvs {
		if x.inPlace(t) {
			if err := x.awaitSends(t.After); err != nil {
				return err
			}
		}
		w, body := x.incoming(i)
		began := time.Now()
		if err := x.fill(w, x.recvHead[:]); err != nil {
			return err
		}
		x.from.waited.Add(int64(time.Since(began)))
		if err := x.check(i, len(body)); err != nil {
			return err
		}
		if err := x.take(w, t, body); err != nil {
			return err
		}
		x.from.got++
		x.got.Add(1)
		notify(x.gotMore)
	}
	return nil
}

// pieceBytes is what is received before it is combined, while it is in a near cache. It
// is a multiple of every size.
const pieceBytes = 128 << 10

// take receives the payload of t and applies it.
func (x *execution) take(w wire, t schedule.Transfer, body []byte) error {
	if x.inPlace(t) || t.Action == schedule.Stash {
		return x.fill(w, body)
	}
	if x.sent.Load() < int64(t.After) {
		if err := x.fill(w, body); err != nil {
			return err
		}
		if err := x.awaitSends(t.After); err != nil {
			return err
		}
		x.apply(t, body)
		return nil
	}
	for n := pieceBytes / x.wide; t.Lo < t.Hi; t.Lo += n {
		part := t
		part.Hi = min(t.Lo+n, t.Hi)
		piece := body[:(part.Hi-part.Lo)*x.wide]
		if err := x.fill(w, piece); err != nil {
			return err
		}
		x.apply(part, piece)
	}
	return nil
}

func (x *execution) awaitSends(n int) error {
	for x.sent.Load() < int64(n) {
		select {
		case <-x.sentMore:
		case <-x.c.life.Done():
			return x.c.ended()
		}
	}
	return nil
}

// fill receives len(p) bytes.
func (x *execution) fill(w wire, p []byte) error {
	for len(p) > 0 {
		n, err := w.read(p)
		p = p[n:]
		if err != nil && len(p) > 0 {
			return x.broken(x.from.rank, err)
		}
	}
	return nil
}
