package collective

import (
	"net"
	"syscall"
)

// tapSockets is a rig's tap.
func tapSockets(r *rig, conn net.Conn) (wire, error) {
	w, err := newWire(conn.(*rigConn).Conn.(syscallConn))
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead {
		w.close()
		return nil, errRig
	}
	s := &rigWire{socketWire: w.(*socketWire), rig: r}
	r.wires = append(r.wires, s)
	return s, nil
}

type syscallConn interface {
	net.Conn
	syscall.Conn
}

// rigWire is the system calls of a wire, as the rig sees them.
type rigWire struct {
	*socketWire
	rig  *rig
	part bool // of a message was written
}

// dies is asked at the begin of each message.
func (w *rigWire) dies(head, body []byte) bool {
	if w.rig.gone() {
		return true
	}
	if w.part || !w.rig.dies(0, 0) {
		return false
	}
	for left := w.rig.part(len(head) + len(body)); left > 0; {
		h := head[:min(left, len(head))]
		n, err := w.socketWire.tryWrite(h, body[:left-len(h)])
		if err != nil || n == 0 {
			break
		}
		k := min(n, len(head))
		head, body, left = head[k:], body[n-k:], left-n
	}
	w.rig.kill()
	return true
}

func (w *rigWire) write(head, body []byte) error {
	if w.dies(head, body) {
		return errRig
	}
	return w.socketWire.write(head, body)
}

func (w *rigWire) tryWrite(head, body []byte) (int, error) {
	if w.dies(head, body) {
		return 0, errRig
	}
	n, err := w.socketWire.tryWrite(head, body)
	// Also if it could not begin: it tries the same message again.
	w.part = err == nil && n < len(head)+len(body)
	return n, err
}
