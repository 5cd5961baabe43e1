package collective

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/regroup-io/regroup/collective/schedule"
)

// work is a collective operation in progress. The goroutine of the caller sends,
// the reader of the previous rank's link receives and reduces; each waits for the
// other where the plan says so. There is one per communicator, used again and again.
type work struct {
	call call
	plan schedule.Plan
	size int // bytes per element
	data []byte

	sent, got         atomic.Int64
	sentMore, gotMore chan struct{}
	released          chan struct{} // the reader has let go of data
}

func (w *work) init() {
	w.sentMore, w.gotMore = make(chan struct{}, 1), make(chan struct{}, 1)
	w.released = make(chan struct{}, 1)
}

func (w *work) bytes(t schedule.Transfer) []byte {
	return w.data[t.Lo*w.size : t.Hi*w.size]
}

// take waits for the turn of an operation. It returns what ends the turn.
func (c *Communicator) take(ctx context.Context) (func(), error) {
	if err := c.gate(); err != nil {
		return nil, err
	}
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.life.Done():
		return nil, c.ended()
	}
	err := context.Cause(ctx)
	if err == nil {
		// busy before gate: Close sets closing first and looks at busy then, so that
		// one of the two sees the other.
		c.busy.Add(1)
		if err = c.gate(); err == nil {
			return func() { c.busy.Add(-1); <-c.turn }, nil
		}
		c.busy.Add(-1)
	}
	<-c.turn
	return nil, err
}

// ended is why life is over.
func (c *Communicator) ended() error {
	if failure := c.Failed(); failure != nil {
		return failure
	}
	return ErrClosed
}

// run executes the plan in c.work on data. The caller has the turn.
func (c *Communicator) run(ctx context.Context, k call, data []byte) error {
	w := &c.work
	c.seq++
	k.seq = c.seq
	w.call, w.size, w.data = k, k.dtype.size(), data
	w.sent.Store(0)
	w.got.Store(0)
	defer func() { w.data = nil }()
	for _, ch := range []chan struct{}{w.sentMore, w.gotMore} {
		select {
		case <-ch: // left over from the operation before
		default:
		}
	}
	c.next.quiet.Store(0)
	c.prev.quiet.Store(0)
	stop := c.watch(ctx)
	defer stop()
	posted := len(w.plan.Recvs) > 0
	if posted {
		c.posts <- w
		// The reader sets left and then looks for work; here it is the other way
		// around. One of the two sees it.
		if c.prev.left.Load() {
			c.fail(c.lost(c.prev.peer, ErrLeft))
		}
	}
	if len(w.plan.Sends) > 0 && c.next.left.Load() {
		c.fail(c.lost(c.next.peer, ErrLeft))
	}
	c.sendAll(w)
	if posted {
		select {
		case <-w.released:
		case <-c.life.Done():
			select {
			case <-c.posts: // the reader had not begun
			default:
				<-w.released
			}
		}
	}
	if c.life.Err() != nil || w.got.Load() < int64(len(w.plan.Recvs)) || w.sent.Load() < int64(len(w.plan.Sends)) {
		return c.ended()
	}
	return nil
}

func (c *Communicator) sendAll(w *work) {
	for i, t := range w.plan.Sends {
		for w.got.Load() < int64(t.After) {
			select {
			case <-w.gotMore:
			case <-c.life.Done():
				return
			}
		}
		err := c.next.send(head{kind: frameData, call: w.call, index: uint32(i)}, w.bytes(t))
		if err != nil {
			if c.next.left.Load() {
				err = ErrLeft
			}
			c.blame(c.next.peer, err)
			return
		}
		w.sent.Add(1)
		notify(w.sentMore)
	}
}

// receive takes one data frame.
func (l *link) receive(h head) error {
	c := l.c
	if l.current == nil {
		// The peer may be ahead; its data waits until our program gets there.
		l.held.Store(true)
		select {
		case l.current = <-c.posts:
			l.quiet.Store(0)
			l.held.Store(false)
		case <-c.life.Done():
			return l.skip(int(h.length))
		}
	}
	w := l.current
	i := int(w.got.Load())
	t := w.plan.Recvs[i]
	if h.call != w.call {
		c.fail(&DivergedError{
			Generation: c.opt.Generation, Rank: c.opt.Rank, Peer: l.peer,
			Mine: w.call.String(), Theirs: h.call.String(),
		})
		return l.reject(h)
	}
	if int(h.index) != i || int(h.length) != len(w.bytes(t)) {
		c.fail(c.lost(l.peer, fmt.Errorf("%w: message %d of %d bytes, expected %d of %d", errFrame, h.index, h.length, i, len(w.bytes(t)))))
		return l.reject(h)
	}
	for w.sent.Load() < int64(t.After) {
		select {
		case <-w.sentMore:
		case <-c.life.Done():
			return l.reject(h)
		}
	}
	if t.Action == schedule.Copy {
		if err := l.fill(w.bytes(t), true); err != nil || l.current == nil {
			return err
		}
	} else {
		if err := l.fill(c.scratch[:h.length], true); err != nil || l.current == nil {
			return err
		}
		reduce(w.call.dtype, w.call.op, w.bytes(t), c.scratch[:h.length], t.Action == schedule.Finish, c.opt.World)
	}
	done := i+1 == len(w.plan.Recvs)
	w.got.Add(1)
	notify(w.gotMore)
	if done {
		l.release()
	}
	return nil
}

// reject gives the work back and reads over the payload.
func (l *link) reject(h head) error {
	l.release()
	return l.skip(int(h.length))
}

// release lets go of the caller's memory.
func (l *link) release() {
	if l.current != nil {
		w := l.current
		l.current = nil
		w.released <- struct{}{}
	}
}
