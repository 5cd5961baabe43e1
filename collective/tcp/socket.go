package tcp

import (
	"net"

	"golang.org/x/sys/unix"
)

// tuneSocket sets socket options that package net does not offer.
func tuneSocket(conn *net.TCPConn, pace int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silentAfter.Milliseconds()))
		if set == nil && pace > 0 {
			set = unix.SetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, uint64(pace))
		}
		if sameHost(conn) {
			// Nothing is lost between the two ends and nobody shares the path, so congestion
			// control that models the network, as BBR does, only costs: cubic is about a quarter
			// faster. A kernel without cubic keeps its default.
			_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
		}
	})
	if err != nil {
		return err
	}
	return set
}

// sameHost reports whether both ends are on this machine.
func sameHost(conn *net.TCPConn) bool {
	local, ok1 := conn.LocalAddr().(*net.TCPAddr)
	remote, ok2 := conn.RemoteAddr().(*net.TCPAddr)
	return ok1 && ok2 && local.IP.Equal(remote.IP)
}
