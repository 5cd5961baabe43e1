package tcpstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
)

// buffers are those of one connection while requests of it are being received and answered. A
// connection that is idle has none: thousands are, most of the time.
type buffers struct {
	in, out [1 << 10]byte
}

var pool = sync.Pool{New: func() any { return new(buffers) }}

// stream reads requests and writes replies. Replies are held back until more input is awaited.
type stream struct {
	net.Conn
	raw syscall.RawConn // nil: Conn has no descriptor, and keeps its buffers
	buf *buffers
	// in[from:to] was received and is unread, out[:held] was written and is unsent
	from, to, held int

	target []byte // of readFD
	err    error  // of readFD
	readFD func(fd uintptr) bool
}

func newStream(nc net.Conn) *stream {
	s := &stream{Conn: nc}
	if c, ok := nc.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			s.raw, s.readFD = raw, s.tryRead
		}
	}
	return s
}

// tryRead reads once; false means that there was nothing, and the runtime is to wait. It has
// buffers only while there is something.
func (s *stream) tryRead(fd uintptr) bool {
	p, into := s.target, s.buf
	if p == nil {
		if into == nil {
			into = pool.Get().(*buffers)
		}
		p = into.in[:]
	}
	for {
		n, err := syscall.Read(int(fd), p)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			if s.target == nil {
				pool.Put(into)
				s.buf = nil
			}
			return false
		case err != nil:
			s.err = err
		case n == 0:
			s.err = io.EOF
		}
		s.to, s.buf = max(n, 0), into
		return true
	}
}

// receive waits for input, sends the replies first, and returns the number of bytes: in the buffer,
// or in target unless that is nil.
func (s *stream) receive(target []byte) (int, error) {
	if err := s.flush(); err != nil {
		return 0, err
	}
	s.from, s.to, s.err = 0, 0, nil
	if s.raw == nil {
		if s.buf == nil {
			s.buf = pool.Get().(*buffers)
		}
		p := target
		if p == nil {
			p = s.buf.in[:]
		}
		s.to, s.err = s.Read(p)
	} else {
		s.target = target
		if err := s.raw.Read(s.readFD); err != nil {
			return 0, err
		}
	}
	n := s.to
	if target != nil {
		s.to = 0
	}
	if n > 0 {
		return n, nil
	}
	if s.err == nil {
		s.err = io.ErrNoProgress
	}
	return 0, s.err
}

// free gives the buffers back.
func (s *stream) free() {
	if s.buf != nil {
		pool.Put(s.buf)
		s.buf = nil
	}
	s.from, s.to, s.held = 0, 0, 0
}

// next returns between 1 and n bytes that are valid until the next call.
func (s *stream) next(n int) ([]byte, error) {
	if s.from == s.to {
		if _, err := s.receive(nil); err != nil {
			return nil, err
		}
	}
	p := s.buf.in[s.from:min(s.to, s.from+n)]
	s.from += len(p)
	return p, nil
}

// read fills p.
func (s *stream) read(p []byte) error {
	n := 0
	if s.from < s.to {
		n = copy(p, s.buf.in[s.from:s.to])
		s.from += n
	}
	for n < len(p) {
		if len(p)-n >= len(buffers{}.in) {
			m, err := s.receive(p[n:])
			if err != nil {
				return err
			}
			n += m
			continue
		}
		b, err := s.next(len(p) - n)
		if err != nil {
			return err
		}
		n += copy(p[n:], b)
	}
	return nil
}

func (s *stream) byte() (byte, error) {
	b, err := s.next(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

func (s *stream) uint32() (uint32, error) {
	n, err := s.integer(4)
	return uint32(n), err
}

func (s *stream) uint64() (uint64, error) { return s.integer(8) }

func (s *stream) integer(size int) (uint64, error) {
	if s.to-s.from >= 8 {
		n := binary.LittleEndian.Uint64(s.buf.in[s.from:])
		s.from += size
		return n << (64 - 8*size) >> (64 - 8*size), nil
	}
	var n uint64
	for i := range size {
		b, err := s.byte()
		if err != nil {
			return 0, err
		}
		n |= uint64(b) << (8 * i)
	}
	return n, nil
}

// write writes to the buffer, or to the connection if p is too long for it.
func (s *stream) write(p []byte) error {
	if s.held+len(p) > len(buffers{}.out) {
		if err := s.flush(); err != nil {
			return err
		}
		if len(p) > len(buffers{}.out) {
			_, err := s.Write(p)
			return err
		}
	}
	s.held += copy(s.buf.out[s.held:], p)
	return nil
}

func (s *stream) writeByte(b byte) error { return s.write([]byte{b}) }

func (s *stream) writeInt(n int64) error {
	return s.write(binary.LittleEndian.AppendUint64(make([]byte, 0, 8), uint64(n)))
}

// writeBytes writes a length and that many bytes.
func (s *stream) writeBytes(p []byte) error {
	if err := s.writeInt(int64(len(p))); err != nil {
		return err
	}
	return s.write(p)
}

func (s *stream) flush() error {
	if s.held == 0 {
		return nil
	}
	n := s.held
	s.held = 0
	_, err := s.Write(s.buf.out[:n])
	return err
}

// writeNow writes one byte without waiting; it fails if the peer has not read earlier replies.
func (s *stream) writeNow(b byte) error {
	p := [1]byte{b}
	if s.raw == nil {
		_, err := s.Write(p[:])
		return err
	}
	var failed error
	err := s.raw.Write(func(fd uintptr) bool {
		for {
			_, failed = syscall.Write(int(fd), p[:])
			if failed != syscall.EINTR {
				return true
			}
		}
	})
	return errors.Join(err, failed)
}

// tooLong is the error of a length over its bound.
func tooLong(what string, n uint64, most int) error {
	return fmt.Errorf("%s of %d, at most %d", what, n, most)
}
