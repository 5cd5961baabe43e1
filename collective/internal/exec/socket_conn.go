package exec

import (
	"io"
	"net"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socketConn is a Conn over a socket that is used with plain system calls: handing a small message
// to a goroutine that sleeps in the network poller costs ten times as much as the message.
type socketConn struct {
	fd     int
	mu     sync.Mutex // guards closed, and fd against Shutdown after Close
	closed bool

	msg unix.Msghdr
	iov [2]unix.Iovec
}

// NewConn takes ownership of a connection.
func NewConn(conn net.Conn) (Conn, error) {
	raw, ok := conn.(syscall.Conn)
	if !ok {
		return &streamConn{conn: conn}, nil
	}
	fd, err := duplicate(raw)
	if err != nil {
		return nil, err
	}
	_ = conn.Close()
	return &socketConn{fd: fd}, nil
}

// duplicate returns a blocking descriptor of the same socket.
func duplicate(conn syscall.Conn) (fd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	fd = -1
	var dup error
	err = raw.Control(func(old uintptr) {
		fd, dup = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err == nil {
		err = dup
	}
	if err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil && fd >= 0 {
		_ = unix.Close(fd)
	}
	return fd, err
}

func (c *socketConn) Descriptor() int32 { return int32(c.fd) }

func (c *socketConn) Write(head, body []byte) error {
	for len(head)+len(body) > 0 {
		n, err := c.transfer(unix.SYS_SENDMSG, head, body, unix.MSG_NOSIGNAL, true)
		if err != nil {
			return err
		}
		k := min(n, len(head))
		head, body = head[k:], body[n-k:]
	}
	return nil
}

func (c *socketConn) Read(p []byte) (int, error) {
	return c.transfer(unix.SYS_RECVMSG, nil, p, 0, true)
}

func (c *socketConn) TryWrite(head, body []byte) (int, error) {
	return c.transfer(unix.SYS_SENDMSG, head, body, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, len(body) > shortOp)
}

func (c *socketConn) TryRead(head, body []byte) (int, error) {
	return c.transfer(unix.SYS_RECVMSG, head, body, unix.MSG_DONTWAIT, len(body) > shortOp)
}

// transfer sends or receives up to two buffers, which are not both empty. It returns 0 if nothing
// could be transferred now. A blocking call must tell the scheduler; others are too short for that.
func (c *socketConn) transfer(call uintptr, head, body []byte, flags uintptr, blocking bool) (int, error) {
	k := 0
	for _, p := range [2][]byte{head, body} {
		if len(p) > 0 {
			c.iov[k].Base = unsafe.SliceData(p)
			c.iov[k].SetLen(len(p))
			k++
		}
	}
	c.msg.Iov = &c.iov[0]
	c.msg.SetIovlen(k)
	var n uintptr
	var errno syscall.Errno
	if blocking {
		n, _, errno = syscall.Syscall(call, uintptr(c.fd), uintptr(unsafe.Pointer(&c.msg)), flags)
	} else {
		n, _, errno = syscall.RawSyscall(call, uintptr(c.fd), uintptr(unsafe.Pointer(&c.msg)), flags)
	}
	c.iov[0].Base, c.iov[1].Base = nil, nil // the caller's memory must not stay reachable from here
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return 0, nil
	case errno != 0:
		return 0, errno
	case n == 0:
		return 0, io.EOF
	}
	return int(n), nil
}

func (c *socketConn) Shutdown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		_ = unix.Shutdown(c.fd, unix.SHUT_RDWR)
	}
}

func (c *socketConn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		_ = unix.Close(c.fd)
	}
}

// poll waits until one of two connections can be read or written, or is shut down; nil = none.
func poll(readable, writable PollConn) {
	var fds [2]unix.PollFd
	k := 0
	if readable != nil {
		fds[k] = unix.PollFd{Fd: readable.Descriptor(), Events: unix.POLLIN}
		k++
	}
	if writable != nil {
		fds[k] = unix.PollFd{Fd: writable.Descriptor(), Events: unix.POLLOUT}
		k++
	}
	_, _ = unix.Poll(fds[:k], -1) // the caller finds an error when it tries again
}
