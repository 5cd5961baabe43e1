package collective

import (
	"io"
	"net"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socketWire is a wire over a socket that is used with plain system calls: handing a
// small message to a goroutine that sleeps in the network poller costs ten times as
// much as the message.
type socketWire struct {
	fd  int
	mu  sync.Mutex // of closed and shut
	end bool

	msg unix.Msghdr
	iov [2]unix.Iovec
}

// newWire takes a connection over.
func newWire(conn net.Conn) (wire, error) {
	raw, ok := conn.(syscall.Conn)
	if !ok {
		return &connWire{conn: conn}, nil
	}
	fd, err := duplicate(raw)
	if err != nil {
		return nil, err
	}
	_ = conn.Close()
	return &socketWire{fd: fd}, nil
}

// duplicate returns a descriptor of the same socket that blocks.
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

func (w *socketWire) descriptor() int32 { return int32(w.fd) }

func (w *socketWire) write(head, body []byte) error {
	for len(head)+len(body) > 0 {
		n, errno := w.move(unix.SYS_SENDMSG, head, body, unix.MSG_NOSIGNAL, true)
		if errno != 0 {
			if errno == unix.EINTR {
				continue
			}
			return errno
		}
		k := min(n, len(head))
		head, body = head[k:], body[n-k:]
	}
	return nil
}

func (w *socketWire) read(p []byte) (int, error) {
	for {
		n, errno := w.move(unix.SYS_RECVMSG, nil, p, 0, true)
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return 0, errno
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

func (w *socketWire) tryWrite(head, body []byte) (int, error) {
	n, errno := w.move(unix.SYS_SENDMSG, head, body, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, len(body) > brief)
	if errno == unix.EAGAIN || errno == unix.EINTR {
		return 0, nil
	}
	if errno != 0 {
		return 0, errno
	}
	return n, nil
}

func (w *socketWire) tryRead(head, body []byte) (int, error) {
	n, errno := w.move(unix.SYS_RECVMSG, head, body, unix.MSG_DONTWAIT, len(body) > brief)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return 0, nil
	case errno != 0:
		return 0, errno
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// move sends or receives up to two pieces of memory.
func (w *socketWire) move(trap uintptr, head, body []byte, flags uintptr, long bool) (int, syscall.Errno) {
	k := 0
	for _, p := range [2][]byte{head, body} {
		if len(p) > 0 {
			w.iov[k].Base = unsafe.SliceData(p)
			w.iov[k].SetLen(len(p))
			k++
		}
	}
	w.msg.Iov = &w.iov[0]
	w.msg.SetIovlen(k)
	var n uintptr
	var errno syscall.Errno
	if long {
		n, _, errno = syscall.Syscall(trap, uintptr(w.fd), uintptr(unsafe.Pointer(&w.msg)), flags)
	} else {
		n, _, errno = syscall.RawSyscall(trap, uintptr(w.fd), uintptr(unsafe.Pointer(&w.msg)), flags)
	}
	w.iov[0].Base, w.iov[1].Base = nil, nil // the caller's memory must not stay reachable from here
	return int(n), errno
}

func (w *socketWire) shut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.end {
		_ = unix.Shutdown(w.fd, unix.SHUT_RDWR)
	}
}

func (w *socketWire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.end {
		w.end = true
		_ = unix.Close(w.fd)
	}
}

// await waits until one of two wires can be read or written, or is shut; nil = none.
func await(readable, writable polled) {
	var fds [2]unix.PollFd
	k := 0
	if readable != nil {
		fds[k] = unix.PollFd{Fd: readable.descriptor(), Events: unix.POLLIN}
		k++
	}
	if writable != nil {
		fds[k] = unix.PollFd{Fd: writable.descriptor(), Events: unix.POLLOUT}
		k++
	}
	_, _ = unix.Poll(fds[:k], -1) // an error is for the caller to find when it tries again
}
