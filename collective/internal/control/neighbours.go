package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// neighbours are the control connections of a rank, guarded by the session's mu. A rank dials the
// ranks at distances of 1, 2, 4 and so on ahead of it in the ring, and is dialed by those behind
// it.
type neighbours struct {
	dialed   map[int]*link
	accepted map[int]*link
	joined   chan struct{} // closed when all are connected
}

func newNeighbours() neighbours {
	return neighbours{dialed: map[int]*link{}, accepted: map[int]*link{}, joined: make(chan struct{})}
}

// distances calls do with the distance of every neighbour.
func (s *Session) distances(do func(d int)) {
	for d := 1; d < s.cfg.World; d *= 2 {
		do(d)
	}
}

// isDialedBy reports whether a rank is a neighbour that dials this one.
func (s *Session) isDialedBy(rank int) bool {
	d := (s.cfg.Rank - rank + s.cfg.World) % s.cfg.World
	return d > 0 && d&(d-1) == 0
}

// Connect returns when all neighbours are connected, or with the failure.
func (s *Session) Connect(ctx context.Context) error {
	// The dials end with the session and not with ctx: the end of ctx first becomes a failure, so
	// that the peer that is being dialed is told of it.
	dialing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	var dials sync.WaitGroup
	s.distances(func(d int) {
		rank := (s.cfg.Rank + d) % s.cfg.World
		dials.Go(func() {
			conn, err := s.dial(dialing, rank, PurposeControl, 0)
			switch {
			case err == nil:
				s.attach(conn, rank, s.neighbours.dialed)
			case s.Failed() == nil && ctx.Err() == nil:
				s.failDial(rank, err)
			}
		})
	})
	defer dials.Wait()
	select {
	case <-s.neighbours.joined:
		return s.Failed()
	case <-s.ctx.Done():
	case <-ctx.Done():
		cause := fmt.Errorf("%s: %w", s.missing(), context.Cause(ctx))
		s.Fail(&AbortedError{Rank: s.cfg.Rank, Generation: s.cfg.Generation, Cause: cause})
	}
	return s.Failed()
}

func (s *Session) failDial(rank int, err error) {
	switch {
	case IsOutcome(err):
		s.Fail(err)
	case errors.Is(err, ErrRefused), exhausted(err):
		s.Fail(&AbortedError{Rank: s.cfg.Rank, Generation: s.cfg.Generation, Cause: err})
	default:
		s.Blame(rank, err)
	}
}

func (s *Session) missing() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := "all neighbours are there"
	s.distances(func(d int) {
		ahead, behind := (s.cfg.Rank+d)%s.cfg.World, (s.cfg.Rank-d+s.cfg.World)%s.cfg.World
		if s.neighbours.dialed[ahead] == nil {
			text = fmt.Sprintf("rank %d is not there", ahead)
		}
		if s.neighbours.accepted[behind] == nil {
			text = fmt.Sprintf("rank %d is not there", behind)
		}
	})
	return text
}

// attach makes a connection a link and starts its two goroutines.
func (s *Session) attach(conn net.Conn, peer int, links map[int]*link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := newLink(s, conn, peer)
	if s.closing.Load() {
		// The peer was welcomed a moment ago. It would blame us if it were told nothing.
		s.sendAbort(l)
		_ = conn.Close()
		return
	}
	links[peer] = l
	if s.ctx.Err() != nil {
		_ = conn.SetWriteDeadline(time.Now().Add(abortWriteTimeout))
	}
	// Also for a session that has failed in the meantime: the writer then sends the failure.
	s.tasks.Go(l.write)
	s.tasks.Go(l.read)
	count := 0
	s.distances(func(int) { count++ })
	if len(s.neighbours.dialed) == count && len(s.neighbours.accepted) == count {
		close(s.neighbours.joined)
	}
}

func (s *Session) links() []*link {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := &s.neighbours
	return slices.AppendSeq(slices.Collect(maps.Values(n.dialed)), maps.Values(n.accepted))
}

// HasLeft reports whether a neighbour has said goodbye.
func (s *Session) HasLeft(rank int) bool {
	return slices.ContainsFunc(s.links(), func(l *link) bool { return l.peer == rank && l.left.Load() })
}
