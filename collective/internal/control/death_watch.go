package control

import (
	"net"
	"time"

	"github.com/regroup-io/regroup/collective/shm"
)

// peerWatcher is a Transport that can tell at once that the process at the other end of a
// connection has died. See package deathwatch; tcp.Transport implements it.
type peerWatcher interface {
	WatchPeer(conn net.Conn, died func()) (stop func(), err error)
}

// watchPeers has the neighbours that this rank dials and this rank watch each other, so that a
// death is noticed however much memory the system has to reclaim first. It leaves out the ranks
// that skip reports: ranks that share memory notice by that. Where the transport cannot watch, the
// end of the other connections tells, later.
func (s *Session) watchPeers(skip func(rank int) bool) {
	if _, ok := s.cfg.Endpoint.transport.(peerWatcher); !ok {
		return
	}
	s.distances(func(d int) {
		rank := (s.cfg.Rank + d) % s.cfg.World
		if skip(rank) {
			return
		}
		s.tasks.Go(func() {
			if conn, err := s.dial(s.ctx, rank, PurposeDeathWatch, 0); err == nil {
				s.watch(rank, conn)
			}
		})
	})
}

// watch takes ownership of a connection of a death watch.
func (s *Session) watch(rank int, conn net.Conn) {
	t, ok := s.cfg.Endpoint.transport.(peerWatcher)
	if !ok {
		closeUnwatched(conn)
		return
	}
	stop, err := t.WatchPeer(conn, func() {
		if !s.HasLeft(rank) {
			s.Fail(s.Lost(rank, shm.ErrDead))
		}
	})
	if err != nil {
		return
	}
	s.mu.Lock()
	closing := s.closing.Load()
	if !closing {
		s.stopWatch = append(s.stopWatch, stop)
	}
	s.mu.Unlock()
	if closing {
		stop()
	}
}

// closeUnwatched closes a connection that the peer may be watching, as no death. The byte that says
// so has no time limit: a busy machine may exceed any before the write begins, and the peer would
// take this rank for dead. The buffers of a connection that has carried a handshake alone take it
// at once.
func closeUnwatched(conn net.Conn) {
	_ = conn.SetWriteDeadline(time.Time{})
	_, _ = conn.Write([]byte{0})
	_ = conn.Close()
}

// stopWatches ends all death watches and tells the neighbours that this is no death.
func (s *Session) stopWatches() {
	s.mu.Lock()
	all := s.stopWatch
	s.stopWatch = nil
	s.mu.Unlock()
	for _, stop := range all {
		stop()
	}
}
