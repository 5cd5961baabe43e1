package tcpstore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// bufferBytes is the size of each of the two buffers of a connection: thousands of connections are
// idle most of the time, and requests are small.
const bufferBytes = 512

// stream reads requests and writes replies. Replies are held back until more input is awaited.
type stream struct {
	net.Conn
	in  *bufio.Reader
	out *bufio.Writer
}

func newStream(nc net.Conn) *stream {
	s := &stream{Conn: nc, out: bufio.NewWriterSize(nc, bufferBytes)}
	s.in = bufio.NewReaderSize(s, bufferBytes)
	return s
}

// Read waits for input, and sends the replies first.
func (s *stream) Read(p []byte) (int, error) {
	if err := s.out.Flush(); err != nil {
		return 0, err
	}
	return s.Conn.Read(p)
}

// next returns n bytes, at most bufferBytes, that are valid until the next call.
func (s *stream) next(n int) ([]byte, error) {
	b, err := s.in.Peek(n)
	if err == nil {
		_, err = s.in.Discard(n)
	}
	return b, err
}

func (s *stream) byte() (byte, error) { return s.in.ReadByte() }

func (s *stream) uint32() (uint32, error) {
	b, err := s.next(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (s *stream) uint64() (uint64, error) {
	b, err := s.next(8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// read fills p.
func (s *stream) read(p []byte) error {
	_, err := io.ReadFull(s.in, p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}

func (s *stream) write(p []byte) error {
	_, err := s.out.Write(p)
	return err
}

func (s *stream) writeByte(b byte) error { return s.out.WriteByte(b) }

func (s *stream) writeInt(n int64) error {
	return s.write(binary.LittleEndian.AppendUint64(s.out.AvailableBuffer(), uint64(n)))
}

// writeBytes writes a length and that many bytes.
func (s *stream) writeBytes(p []byte) error {
	if err := s.writeInt(int64(len(p))); err != nil {
		return err
	}
	return s.write(p)
}

// writeNow writes one byte without waiting; it fails if the peer has not read earlier replies.
func (s *stream) writeNow(b byte) error {
	p := []byte{b}
	c, ok := s.Conn.(syscall.Conn)
	if !ok { // it has no descriptor
		_, err := s.Conn.Write(p)
		return err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		for {
			_, failed = syscall.Write(int(fd), p)
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
