package control

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regroup-io/regroup/collective/internal/frame"
)

// link is a control connection to a neighbour. One goroutine reads it and one writes it.
type link struct {
	s    *Session
	conn net.Conn
	peer int

	wmu  sync.Mutex // keeps frames whole
	torn bool       // a frame was cut off: nothing more can be sent
	wbuf []byte

	pending atomic.Uint32 // frames that the writer shall send: the bits of their kinds
	wake    chan struct{}

	silent  atomic.Int32  // ticks of the monitor since something came
	left    atomic.Bool   // the peer said goodbye
	seq     atomic.Uint64 // of the operation that the peer was in
	settled chan struct{} // closed when the peer needs nothing more from us
	once    sync.Once
}

func newLink(s *Session, conn net.Conn, peer int) *link {
	return &link{
		s: s, conn: conn, peer: peer,
		wake: make(chan struct{}, 1), settled: make(chan struct{}),
	}
}

// queue has the writer send a control frame without a payload, or a heartbeat.
func (l *link) queue(kind frame.Kind) {
	l.pending.Or(1 << kind)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *link) settle() { l.once.Do(func() { close(l.settled) }) }

func (l *link) write() {
	for {
		select {
		case <-l.wake:
		case <-l.s.ctx.Done():
			if failure := l.s.Failed(); failure != nil {
				l.sendFailure(failure)
			}
			return
		}
		pending := l.pending.Swap(0)
		for _, kind := range [...]frame.Kind{frame.Heartbeat, frame.GoodbyeAck, frame.Goodbye} {
			h, payload := frame.Header{Kind: kind}, []byte(nil)
			if pending&(1<<kind) == 0 {
				continue
			}
			if kind == frame.Heartbeat {
				h.Op, payload = l.s.ops.newest(), l.s.waits.encode()
			}
			_ = l.send(h, payload) // an error also reaches the reader, which knows what to make of it
		}
	}
}

// sendFailure sends the peer the reason why this session has failed. Its time limit begins here: on
// a busy machine the deadline that Fail has set may be over before the writer runs, and even this
// one before the write begins, so it is tried again. If the failure cannot be sent, the peer finds
// the connection closed and asks the endpoint.
func (l *link) sendFailure(failure error) {
	for range 3 {
		_ = l.conn.SetWriteDeadline(time.Now().Add(abortWriteTimeout))
		err := l.send(frame.Header{Kind: frame.Abort}, encodeFailure(failure, l.s.cfg.Rank))
		if err == nil {
			return
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	_ = l.conn.Close()
}

var errTorn = errors.New("the connection broke off within a message")

func (l *link) send(h frame.Header, payload []byte) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if l.torn {
		return errTorn
	}
	h.Length = uint32(len(payload))
	l.wbuf = append(append(l.wbuf[:0], make([]byte, frame.HeaderLen)...), payload...)
	h.Put(l.wbuf)
	n, err := l.conn.Write(l.wbuf)
	l.torn = n > 0 && n < len(l.wbuf)
	return err
}

func (l *link) read() {
	defer l.settle()
	header := make([]byte, frame.HeaderLen)
	for {
		err := l.fill(header)
		if err == nil {
			err = l.handle(header)
		}
		if err != nil {
			if !l.left.Load() {
				l.s.Blame(l.peer, err)
			}
			return
		}
	}
}

func (l *link) handle(b []byte) error {
	h, err := frame.Parse(b)
	if err != nil {
		return err
	}
	payload := make([]byte, h.Length)
	if err := l.fill(payload); err != nil {
		return err
	}
	switch h.Kind {
	case frame.Heartbeat:
		l.seq.Store(h.Op.Seq)
		l.s.waits.add(payload, l.s.cfg.World)
		if mine, ok := l.s.ops.differs(h.Op); ok {
			l.s.Diverged(l.peer, mine.String(), h.Op.String())
		}
	case frame.Goodbye:
		l.left.Store(true)
		l.s.data.PeerLeft(l.peer)
		l.queue(frame.GoodbyeAck)
	case frame.GoodbyeAck:
		l.settle()
	case frame.Abort:
		failure, ok := l.s.decode(payload)
		if !ok {
			return frame.ErrMalformed
		}
		l.s.Fail(failure)
		l.settle()
	default:
		return frame.ErrMalformed
	}
	return nil
}

func (l *link) fill(p []byte) error {
	for len(p) > 0 {
		n, err := l.conn.Read(p)
		p = p[n:]
		if n > 0 {
			l.silent.Store(0)
		}
		if err != nil && len(p) > 0 {
			return err
		}
	}
	return nil
}
