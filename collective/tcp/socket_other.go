//go:build !linux

package tcp

import (
	"net"
	"time"
)

// setUserTimeout does nothing where TCP_USER_TIMEOUT does not exist; keepalive
// probes still find a dead machine.
func tuneSocket(*net.TCPConn, time.Duration) error { return nil }
