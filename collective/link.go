package collective

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// link is a connection of the ring. One goroutine reads it. Messages of operations
// are written by the goroutine of the operation, control frames by the goroutine
// write; wmu keeps frames whole.
type link struct {
	c       *Communicator
	conn    net.Conn
	peer    int
	forward bool // to the next rank: we send data, and expect none

	wmu  sync.Mutex
	torn bool // a frame was cut off: nothing more can be said
	wbuf []byte
	vec  [2][]byte
	bufs net.Buffers

	sayings atomic.Uint32
	wake    chan struct{}

	quiet   atomic.Int32 // ticks of the monitor since something came
	held    atomic.Bool  // the reader waits for our program: silence is ours
	left    atomic.Bool  // the peer said goodbye
	settled chan struct{}
	once    sync.Once

	current *work // of the reader
	junk    []byte
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

// inline is the payload up to which a message is copied behind its header and
// written at once; beyond it the copy costs more than a second vector.
const inline = 8 << 10

func newLink(c *Communicator, conn net.Conn, peer int, forward bool) *link {
	return &link{
		c: c, conn: conn, peer: peer, forward: forward,
		wbuf: make([]byte, headLen, headLen+inline),
		wake: make(chan struct{}, 1), settled: make(chan struct{}),
	}
}

// say has the writer send control frames.
func (l *link) say(what uint32) {
	l.sayings.Or(what)
	notify(l.wake)
}

func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
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
				l.wmu.Lock()
				_ = l.conn.SetWriteDeadline(time.Now().Add(sayAbort))
				l.wmu.Unlock()
				_ = l.send(head{kind: frameAbort}, encodeVerdict(failure, l.c.opt.Rank))
			}
			return
		}
		what := l.sayings.Swap(0)
		for _, s := range sayings {
			if what&s.bit != 0 {
				// An error shows at the reader as well, which knows what to make of it.
				_ = l.send(head{kind: s.kind}, nil)
			}
		}
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
	if h.kind == frameData && l.c.failure.Load() != nil {
		return l.c.Failed() // the time that is left belongs to the abort
	}
	h.length = uint32(len(payload))
	h.put(l.wbuf[:headLen])
	var n int64
	var err error
	if len(payload) <= inline {
		var k int
		k, err = l.conn.Write(append(l.wbuf[:headLen], payload...))
		n = int64(k)
	} else {
		l.vec = [2][]byte{l.wbuf[:headLen], payload}
		l.bufs = l.vec[:]
		n, err = l.bufs.WriteTo(l.conn)
		l.vec[1] = nil // the caller's memory must not stay reachable from here
	}
	if n > 0 && n < int64(headLen+len(payload)) {
		l.torn = true
	}
	return err
}

// read handles what comes until the connection ends.
func (l *link) read() {
	defer l.settle()
	defer l.release()
	head := make([]byte, headLen)
	for {
		err := l.fill(head, false)
		if err == nil {
			err = l.handle(head)
		}
		if err != nil {
			// The work is held until the failure is known (see the deferred release):
			// an operation that gets it back without one would take it for success.
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
	switch h.kind {
	case frameData:
		if l.forward {
			return errFrame
		}
		return l.receive(h)
	case frameBye:
		l.left.Store(true)
		l.say(sayByeAck)
		if l.current != nil || len(l.c.posts) > 0 && !l.forward {
			l.c.fail(l.c.lost(l.peer, ErrLeft))
		}
	case frameByeAck:
		l.settle()
	case frameAbort:
		text := make([]byte, h.length)
		if err := l.fill(text, false); err != nil {
			return err
		}
		failure, ok := decodeVerdict(text, l.c.opt.Generation, l.c.opt.World)
		if !ok {
			return errFrame
		}
		l.c.fail(failure)
		l.settle()
	}
	return nil
}

// fill reads len(p) bytes. The only deadline that is ever set is that of a failure.
// It interrupts a read into memory of the caller, who wants it back; everything
// else is read on, to find the peer's last word.
func (l *link) fill(p []byte, callers bool) error {
	if !callers && l.c.failure.Load() != nil {
		// The deadline of the failure may have been used up before this work was taken.
		l.release()
	}
	for len(p) > 0 {
		n, err := l.conn.Read(p)
		p = p[n:]
		if n > 0 {
			l.quiet.Store(0)
		}
		if callers && l.c.failure.Load() != nil && len(p) > 0 {
			l.release()
			return l.skip(len(p))
		}
		if err != nil && len(p) > 0 {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				return err
			}
			l.release() // it may be held between two messages
			_ = l.conn.SetReadDeadline(time.Time{})
		}
	}
	return nil
}

// skip reads n bytes that nobody wants any more.
func (l *link) skip(n int) error {
	if l.junk == nil {
		l.junk = make([]byte, 16<<10)
	}
	_ = l.conn.SetReadDeadline(time.Time{})
	for n > 0 {
		k := min(n, len(l.junk))
		if err := l.fill(l.junk[:k], false); err != nil {
			return err
		}
		n -= k
	}
	return nil
}
