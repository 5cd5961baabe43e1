//go:build !linux

package exec

import "net"

// NewConn takes ownership of a connection.
func NewConn(conn net.Conn) (Conn, error) { return &streamConn{conn: conn}, nil }

// poll is for connections that can be polled, of which there are none here.
func poll(_, _ PollConn) {}
