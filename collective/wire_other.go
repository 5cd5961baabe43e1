//go:build !linux

package collective

import "net"

func newWire(conn net.Conn) (wire, error) { return &connWire{conn: conn}, nil }

// await is for wires that can be polled, of which there are none here.
func await(_, _ polled) {}
