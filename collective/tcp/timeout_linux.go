package tcp

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

func setUserTimeout(conn *net.TCPConn, after time.Duration) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return set
}
