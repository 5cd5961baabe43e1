package collective

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is a connection to a neighbour for control frames: heartbeats, goodbye, abort.
// It carries no data, so an abort is never behind any. One goroutine reads it and one
// writes it; wmu keeps frames whole.
type link struct {
	c    *Communicator
	conn net.Conn
	peer int

	wmu  sync.Mutex
	torn bool // a frame was cut off: nothing more can be said
	wbuf []byte

	sayings atomic.Uint32
	wake    chan struct{}

	quiet   atomic.Int32  // ticks of the monitor since something came
	left    atomic.Bool   // the peer said goodbye
	seq     atomic.Uint64 // of the operation in which the peer was
	settled chan struct{}
	once    sync.Once
}

// Bits of link.sayings.
const (
	sayBeat uint32 = 1 << iota
	sayBye
	sayByeAck
)

var sayings = [...]struct {
	bit  uint32
	kind frameKind
}{{sayBeat, frameBeat}, {sayByeAck, frameByeAck}, {sayBye, frameBye}}

func newLink(c *Communicator, conn net.Conn, peer int) *link {
	return &link{
		c: c, conn: conn, peer: peer,
		wake: make(chan struct{}, 1), settled: make(chan struct{}),
	}
}

// say has the writer send control frames.
func (l *link) say(what uint32) {
	l.sayings.Or(what)
	notify(l.wake)
}

// settle marks that the peer has nothing more to hear from us.
func (l *link) settle() { l.once.Do(func() { close(l.settled) }) }

func (l *link) write() {
	for {
		select {
		case <-l.wake:
		case <-l.c.quit:
			return
		case <-l.c.life.Done():
			if failure := l.c.Failed(); failure != nil {
				l.sayFailure(failure)
			}
			return
		}
		what := l.sayings.Swap(0)
		for _, s := range sayings {
			if what&s.bit != 0 && s.kind == frameBeat {
				_ = l.send(head{kind: frameBeat, call: l.c.calls.newest()}, l.c.waits.encode())
			} else if what&s.bit != 0 {
				// An error shows at the reader as well, which knows what to make of it.
				_ = l.send(head{kind: s.kind}, nil)
			}
		}
	}
}

// sayFailure sends the peer the reason why this communicator has failed. The time for it begins
// here: on a busy machine the deadline that fail has set may be over before the writer runs. If it
// cannot be sent, the peer finds the connection closed and asks the endpoint.
func (l *link) sayFailure(failure error) {
	_ = l.conn.SetWriteDeadline(time.Now().Add(sayAbort))
	if l.send(head{kind: frameAbort}, encodeVerdict(failure, l.c.opt.Rank)) != nil {
		_ = l.conn.Close()
	}
}

var errTorn = errors.New("the connection broke off within a message")

// send writes one frame.
func (l *link) send(h head, payload []byte) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if l.torn {
		return errTorn
	}
	h.length = uint32(len(payload))
	l.wbuf = append(grow(l.wbuf, headLen), payload...)
	h.put(l.wbuf)
	n, err := l.conn.Write(l.wbuf)
	l.torn = n > 0 && n < len(l.wbuf)
	return err
}

// read handles what comes until the connection ends.
func (l *link) read() {
	defer l.settle()
	head := make([]byte, headLen)
	for {
		err := l.fill(head)
		if err == nil {
			err = l.handle(head)
		}
		if err != nil {
			if !l.left.Load() {
				l.c.blame(l.peer, err)
			}
			return
		}
	}
}

func (l *link) handle(b []byte) error {
	h, err := parseHead(b)
	if err != nil {
		return err
	}
	text := make([]byte, h.length)
	if err := l.fill(text); err != nil {
		return err
	}
	switch h.kind {
	case frameBeat:
		l.seq.Store(h.call.seq)
		l.c.waits.add(text, l.c.opt.World)
		if mine, ok := l.c.calls.differs(h.call); ok {
			l.c.diverged(l.peer, mine, h.call)
		}
	case frameBye:
		l.left.Store(true)
		l.c.departed(l.peer)
		l.say(sayByeAck)
	case frameByeAck:
		l.settle()
	case frameAbort:
		failure, ok := l.c.told(text)
		if !ok {
			return errFrame
		}
		l.c.fail(failure)
		l.settle()
	default:
		return errFrame
	}
	return nil
}

// fill reads len(p) bytes.
func (l *link) fill(p []byte) error {
	for len(p) > 0 {
		n, err := l.conn.Read(p)
		p = p[n:]
		if n > 0 {
			l.quiet.Store(0)
		}
		if err != nil && len(p) > 0 {
			return err
		}
	}
	return nil
}
