//go:build cgo

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/tcp"
)

// transport is TCP that says which sockets are ours, for the forks of the host: a child must not keep them open.
type transport struct{ *tcp.Transport }

var _ collective.Transport = transport{}

func listen(o tcp.Options) (transport, error) {
	t, err := tcp.Listen(o)
	if err != nil {
		return transport{}, err
	}
	ownListener(t.Addr())
	return transport{t}, nil
}

// Dial connects to a peer.
func (t transport) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return owned(t.Transport.Dial(ctx, addr))
}

// Accept takes the next connection.
func (t transport) Accept(ctx context.Context) (net.Conn, error) {
	return owned(t.Transport.Accept(ctx))
}

func owned(conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	if s, is := conn.(syscall.Conn); is {
		if raw, err := s.SyscallConn(); err == nil {
			_ = raw.Control(own)
		}
	}
	return conn, nil
}

// own remembers a socket by the number of its inode.
func own(fd uintptr) {
	var s syscall.Stat_t
	if syscall.Fstat(int(fd), &s) == nil {
		remember(s.Ino)
	}
}

// ownListener finds the socket that listens on the port of addr, which package tcp does not show.
func ownListener(addr string) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		link, err := os.Readlink("/proc/self/fd/" + e.Name())
		var fd int
		if _, bad := fmt.Sscan(e.Name(), &fd); err != nil || bad != nil || !strings.HasPrefix(link, "socket:") {
			continue
		}
		if on, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN); err != nil || on == 0 {
			continue
		}
		name, err := syscall.Getsockname(fd)
		if err != nil {
			continue
		}
		switch a := name.(type) {
		case *syscall.SockaddrInet4:
			if fmt.Sprint(a.Port) == port {
				own(uintptr(fd))
			}
		case *syscall.SockaddrInet6:
			if fmt.Sprint(a.Port) == port {
				own(uintptr(fd))
			}
		}
	}
}
