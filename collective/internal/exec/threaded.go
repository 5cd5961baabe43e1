package exec

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/regroup-io/regroup/collective/schedule"
)

// runThreaded carries out the plan on two threads: the caller receives and combines, the second one
// sends. Each waits for the other where the plan says so. It is for volumes that keep both busy,
// and for connections that cannot be polled.
func (x *executor) runThreaded() error {
	for _, ch := range []chan struct{}{x.sentMore, x.recvMore} {
		select {
		case <-ch: // left over from the previous operation
		default:
		}
	}
	x.ctx.watch()
	sends := len(x.plan.Sends) > 0
	if sends {
		x.startSender()
		x.startSend <- struct{}{}
	}
	err := x.receiveAll()
	if sends {
		// The sender never outlives the operation: it reads the caller's memory.
		if failed := <-x.sendDone; err == nil {
			err = failed
		}
	}
	return err
}

// startSender starts the second thread when it is first needed.
func (x *executor) startSender() {
	x.sender.Do(func() {
		x.session.Go(func() {
			for range x.startSend {
				x.sendDone <- x.sendAll()
			}
		})
	})
}

// stopSender ends the second thread. No operation may be running.
func (x *executor) stopSender() { close(x.startSend) }

func (x *executor) sendAll() error {
	for i, t := range x.plan.Sends {
		if err := x.await(&x.recvCount, t.After, x.recvMore); err != nil {
			return err
		}
		c := x.nextSend(i)
		if err := c.Write(x.sendHeader[:], x.sendBody); err != nil {
			return x.broken(x.to.rank, err)
		}
		x.sentCount.Add(1)
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

func (x *executor) receiveAll() error {
	for i, t := range x.plan.Recvs {
		if x.inPlace(t) {
			if err := x.awaitSends(t.After); err != nil {
				return err
			}
		}
		c, body := x.nextRecv(i)
		began := time.Now()
		if err := x.fill(c, x.recvHeader[:]); err != nil {
			return err
		}
		x.from.waited.Add(int64(time.Since(began)))
		if err := x.check(i, len(body)); err != nil {
			return err
		}
		if err := x.receive(c, t, body); err != nil {
			return err
		}
		x.from.received++
		x.recvCount.Add(1)
		notify(x.recvMore)
	}
	return nil
}

// pieceBytes is received before it is combined, while it is in a near cache. It is a multiple of
// every element size.
const pieceBytes = 128 << 10

// receive receives the payload of t and applies it.
func (x *executor) receive(c Conn, t schedule.Transfer, body []byte) error {
	if x.inPlace(t) || t.Action == schedule.Stash {
		return x.fill(c, body)
	}
	if x.sentCount.Load() < int64(t.After) {
		if err := x.fill(c, body); err != nil {
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
		if err := x.fill(c, piece); err != nil {
			return err
		}
		x.apply(part, piece)
	}
	return nil
}

// awaitSends waits until n messages are sent.
func (x *executor) awaitSends(n int) error { return x.await(&x.sentCount, n, x.sentMore) }

// await waits until a counter has reached n. more tells that the other thread has raised it.
func (x *executor) await(count *atomic.Int64, n int, more <-chan struct{}) error {
	for count.Load() < int64(n) {
		select {
		case <-more:
		case <-x.session.Context().Done():
			return x.session.Ended()
		}
	}
	return nil
}

// fill receives len(p) bytes.
func (x *executor) fill(c Conn, p []byte) error {
	if _, err := io.ReadFull(c, p); err != nil {
		return x.broken(x.from.rank, err)
	}
	return nil
}
