package collective

import (
	"net"
	"time"

	"github.com/regroup-io/regroup/collective/shm"
)

// vigilant is a Transport that can hold a connection so that its end tells of the death of the
// process at the other end at once. See package deathwatch; tcp.Transport implements it.
type vigilant interface {
	WatchPeer(conn net.Conn, died func()) (stop func(), err error)
}

// keepVigil has the neighbours ahead and this rank notice each other's death, however much
// memory the system has to take back first. Ranks of one machine look at each other's process.
// Where it cannot be, the end of the other connections tells, later.
func (c *Communicator) keepVigil() {
	if _, can := c.opt.Endpoint.transport.(vigilant); !can {
		return
	}
	c.distances(func(d int) {
		rank := (c.opt.Rank + d) % c.opt.World
		if c.readsMemory(rank) {
			return
		}
		c.tasks.Go(func() {
			if conn, err := c.dial(c.life, rank, forVigil, 0); err == nil {
				c.holdOn(rank, conn)
			}
		})
	})
}

// holdOn takes a connection of a vigil over.
func (c *Communicator) holdOn(rank int, conn net.Conn) {
	t, can := c.opt.Endpoint.transport.(vigilant)
	if !can {
		waive(conn)
		return
	}
	release, err := t.WatchPeer(conn, func() {
		if !c.left(rank) {
			c.fail(c.lost(rank, shm.ErrDead))
		}
	})
	if err != nil {
		return
	}
	c.mu.Lock()
	late := c.closing.Load()
	if !late {
		c.vigils = append(c.vigils, release)
	}
	c.mu.Unlock()
	if late {
		release()
	}
}

// waive closes a connection that the other end may hold: nobody has died.
func waive(conn net.Conn) {
	_ = conn.SetWriteDeadline(time.Now().Add(sayAbort))
	_, _ = conn.Write([]byte{0})
	_ = conn.Close()
}

// endVigil tells the neighbours that this is no death.
func (c *Communicator) endVigil() {
	c.mu.Lock()
	all := c.vigils
	c.vigils = nil
	c.mu.Unlock()
	for _, release := range all {
		release()
	}
}
