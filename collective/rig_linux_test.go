package collective

import (
	"net"
	"syscall"

	"github.com/regroup-io/regroup/collective/internal/exec"
)

// tapSockets is a rig's tap.
func tapSockets(r *rig, conn net.Conn) (exec.Conn, error) {
	c, err := exec.NewConn(conn.(*rigConn).Conn.(syscallConn))
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead {
		c.Close()
		return nil, errRig
	}
	d := &rigDataConn{PollConn: c.(exec.PollConn), rig: r}
	r.dataConns = append(r.dataConns, d)
	return d, nil
}

type syscallConn interface {
	net.Conn
	syscall.Conn
}

// rigDataConn shows the system calls of a data connection to the rig.
type rigDataConn struct {
	exec.PollConn
	rig  *rig
	part bool // a part of a message was written
}

// dies is asked at the begin of each message.
func (c *rigDataConn) dies(header, body []byte) bool {
	if c.rig.isDead() {
		return true
	}
	if c.part || !c.rig.dies(0, 0) {
		return false
	}
	for left := c.rig.part(len(header) + len(body)); left > 0; {
		h := header[:min(left, len(header))]
		n, err := c.PollConn.TryWrite(h, body[:left-len(h)])
		if err != nil || n == 0 {
			break
		}
		k := min(n, len(header))
		header, body, left = header[k:], body[n-k:], left-n
	}
	c.rig.kill()
	return true
}

func (c *rigDataConn) Write(header, body []byte) error {
	if c.dies(header, body) {
		return errRig
	}
	return c.PollConn.Write(header, body)
}

func (c *rigDataConn) TryWrite(header, body []byte) (int, error) {
	if c.dies(header, body) {
		return 0, errRig
	}
	n, err := c.PollConn.TryWrite(header, body)
	// Also if it could not begin: it tries the same message again.
	c.part = err == nil && n < len(header)+len(body)
	return n, err
}
