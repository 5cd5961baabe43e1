//go:build !linux

package tcp

import (
	"net"
	"time"
)

// tuneSocket does nothing where TCP_USER_TIMEOUT does not exist; keepalive
// probes still find a dead machine.
func tuneSocket(*net.TCPConn, time.Duration, int) error { return nil }
