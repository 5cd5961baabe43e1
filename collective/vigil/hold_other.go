//go:build !linux

package vigil

import (
	"errors"
	"net"
)

// Hold fails: see the version for Linux.
func Hold(conn net.Conn, _ func()) (release func(), err error) {
	_, _ = conn.Write([]byte{0})
	_ = conn.Close()
	return nil, errors.New("vigil: only on Linux")
}
