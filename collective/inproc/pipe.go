package inproc

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// pipeBytes is the buffer size of one direction. net.Pipe has no buffer, so a ring in which every
// rank writes before any reads would deadlock.
const pipeBytes = 256 << 10

// pipe is one direction of a connection: a bounded buffer with deadlines.
type pipe struct {
	mu      sync.Mutex
	changed sync.Cond
	buf     []byte // allocated by the first write; many connections never carry much
	at, n   int    // first unread byte, number of unread bytes
	err     error  // of writes, and of reads once the buffer is empty
	lost    bool   // reset: data that was not read is lost
	reads   deadline
	writes  deadline
}

func newPipe() *pipe {
	p := &pipe{}
	p.changed.L = &p.mu
	return p
}

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.lost:
			return 0, p.err
		case p.reads.over():
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		case p.n > 0:
			got := 0
			for got < len(b) && p.n > 0 {
				k := copy(b[got:], p.buf[p.at:min(p.at+p.n, len(p.buf))])
				got += k
				p.n -= k
				p.at = (p.at + k) % len(p.buf)
			}
			p.changed.Broadcast()
			return got, nil
		case p.err != nil:
			return 0, p.err
		}
		p.changed.Wait()
	}
}

func (p *pipe) write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := 0
	for {
		switch {
		case p.err != nil:
			if errors.Is(p.err, io.EOF) {
				return done, io.ErrClosedPipe
			}
			return done, p.err
		case p.writes.over():
			return done, os.ErrDeadlineExceeded
		case done == len(b):
			return done, nil
		}
		if p.buf == nil {
			p.buf = make([]byte, pipeBytes)
		}
		for done < len(b) && p.n < len(p.buf) {
			end := (p.at + p.n) % len(p.buf)
			limit := len(p.buf)
			if end < p.at {
				limit = p.at
			}
			k := copy(p.buf[end:limit], b[done:])
			done += k
			p.n += k
			p.changed.Broadcast()
		}
		if done == len(b) {
			return done, nil
		}
		p.changed.Wait()
	}
}

// close ends the direction. lost discards what was not read.
func (p *pipe) close(err error, lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil || lost && !p.lost {
		p.err = err
	}
	p.lost = p.lost || lost
	p.reads.stop()
	p.writes.stop()
	p.changed.Broadcast()
}

func (p *pipe) setDeadline(d *deadline, t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d.stop()
	d.at = t
	if !t.IsZero() && p.err == nil {
		d.timer = time.AfterFunc(time.Until(t), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.changed.Broadcast()
		})
	}
	p.changed.Broadcast()
}

// deadline is guarded by its pipe.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) over() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}
