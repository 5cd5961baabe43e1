// Package control keeps the ranks of a generation together. It accepts and authenticates their
// connections, exchanges heartbeats, detects lost ranks, and makes all ranks fail with the same
// error.
//
// An Endpoint accepts connections for all generations of a process and hands each to the Session it
// belongs to. A Session is one rank's membership in one generation. It has a control connection to
// the ranks at distances of 1, 2, 4 and so on around the ring, so a generation of n ranks has
// n log2 n of them, and what one rank says reaches all in log2 n hops. They never carry data, so an
// abort is never queued behind any.
//
// The data connections of a session belong to its DataPlane, see package exec.
package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regroup-io/regroup/collective/internal/frame"
)

// Config describes one rank of one generation.
type Config struct {
	Job         string
	Generation  uint64
	Token       string
	Rank, World int
	Endpoint    *Endpoint
	Peers       func(ctx context.Context, rank int) (string, error)
	StallAfter  time.Duration
	Settings    uint64 // hash of the options that must be equal on all ranks
	OnFailure   func(error)
}

// DataPlane owns the data connections of a session. Its methods may be called concurrently.
type DataPlane interface {
	// Admit prepares for a connection that a rank dials, or returns why it is refused.
	Admit(p Purpose, from, stream int) (refusal string)
	// Adopt takes ownership of an admitted connection.
	Adopt(p Purpose, from, stream int, conn net.Conn)
	// Interrupt ends every wait for a peer. The session has failed or is closing by then.
	Interrupt()
	// PeerLeft says that a rank has left: no more connections of it will come.
	PeerLeft(rank int)
	// WaitTime is how long operations have slept until a peer sent something.
	WaitTime() time.Duration
}

// Session is one rank's membership in one generation. It fails once and for good, on all ranks with
// the same error. Its methods are safe for concurrent use.
type Session struct {
	cfg  Config
	data DataPlane

	// ctx ends with the failure or with Leave.
	ctx     context.Context //nolint:containedctx // the session's own end, not a caller's
	cancel  context.CancelCauseFunc
	failure atomic.Pointer[error]
	failing sync.Mutex  // serialises Fail
	reports atomic.Bool // failures go to OnFailure
	tasks   sync.WaitGroup

	closing    atomic.Bool // set under mu
	mu         sync.Mutex
	neighbours neighbours
	admitted   map[admission]bool // connections that other ranks have made
	stopWatch  []func()           // one for each death watch

	activity activity
	ops      opLog
	waits    waitTable
}

// admission identifies a connection that a rank makes once.
type admission struct {
	purpose      Purpose
	from, stream int
}

// New returns a session that is not reachable yet.
func New(cfg Config) *Session {
	s := &Session{cfg: cfg, neighbours: newNeighbours(), admitted: map[admission]bool{}}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// Start makes the session reachable for its peers and starts to watch them.
func (s *Session) Start(data DataPlane) error {
	s.data = data
	if err := s.cfg.Endpoint.register(s); err != nil {
		return err
	}
	s.tasks.Go(s.monitor)
	return nil
}

// Confirm ends the forming of the generation: failures go to OnFailure from now on, and neighbours
// watch for each other's death, except for those that skip reports. It returns the failure if there
// was one before.
func (s *Session) Confirm(skip func(rank int) bool) error {
	s.failing.Lock()
	s.reports.Store(s.Failed() == nil)
	failure := s.Failed()
	s.failing.Unlock()
	if failure == nil {
		s.watchPeers(skip)
	}
	return failure
}

// Context ends when the session fails or closes.
func (s *Session) Context() context.Context { return s.ctx }

// Go runs a task that Wait waits for.
func (s *Session) Go(task func()) { s.tasks.Go(task) }

// Usable returns why no operation can begin, or nil.
func (s *Session) Usable() error {
	if failure := s.Failed(); failure != nil {
		return failure
	}
	if s.closing.Load() {
		return ErrClosed
	}
	return nil
}

// Ended is why the session has ended.
func (s *Session) Ended() error {
	if failure := s.Failed(); failure != nil {
		return failure
	}
	return ErrClosed
}

const (
	// goodbyeTimeout is how long Leave waits for a neighbour that is slow to read what was sent to
	// it, beyond which it relies on the system to deliver it.
	goodbyeTimeout = 2 * time.Second
	// abortTimeout is the same after a failure. A neighbour that only learns of the failure from
	// the end of our connection would blame us.
	abortTimeout = 100 * time.Millisecond
)

// BeginClose makes Usable fail. Leave, Wait and the closing of the data plane follow.
func (s *Session) BeginClose() {
	s.mu.Lock()
	s.closing.Store(true)
	s.mu.Unlock()
}

// Leave fails a running operation with ErrClosed, says goodbye and ends the session.
func (s *Session) Leave() {
	if s.Failed() == nil && s.Busy() {
		s.Fail(ErrClosed)
	}
	links := s.links()
	for _, l := range links {
		if s.Failed() == nil {
			l.queue(frame.Goodbye)
		}
	}
	s.settle(links)
	s.stopWatches()
	s.cfg.Endpoint.unregister(s, s.outcome())
	s.cancel(ErrClosed)
	for _, l := range links {
		_ = l.conn.Close()
	}
}

// Wait returns when all tasks have ended.
func (s *Session) Wait() { s.tasks.Wait() }

// settle waits until the neighbours have read everything, within bounds that hold for all of them
// together. It does not wait for a lost rank.
func (s *Session) settle(links []*link) {
	within, enough := context.WithTimeout(context.Background(), goodbyeTimeout)
	defer enough()
	defer context.AfterFunc(s.ctx, func() { time.AfterFunc(abortTimeout, enough) })()
	for _, l := range links {
		select {
		case <-l.settled:
			continue
		case <-within.Done():
			return
		case <-s.ctx.Done():
		}
		if lost, ok := errors.AsType[*PeerLostError](s.Failed()); ok && lost.Rank == l.peer {
			continue
		}
		select {
		case <-l.settled:
		case <-within.Done():
			return
		}
	}
}

// admit decides on a connection of a peer that knows the token.
func (s *Session) admit(h hello) (replyCode, []byte) {
	switch {
	case h.order != byteOrder():
		return replyMismatch, []byte("other byte order")
	case h.world != s.cfg.World:
		return replyMismatch, fmt.Appendf(nil, "World is %d here, %d there", s.cfg.World, h.world)
	case h.to != s.cfg.Rank:
		return replyMismatch, fmt.Appendf(nil, "this is rank %d, not %d", s.cfg.Rank, h.to)
	case h.settings != s.cfg.Settings:
		return replyMismatch, []byte("the two differ in ChunkBytes, Streams or NoSharedMemory, or in what they know of LocalSize")
	case h.encrypt != s.cfg.Endpoint.encrypt:
		return replyMismatch, fmt.Appendf(nil, "encryption is %t here, %t there", s.cfg.Endpoint.encrypt, h.encrypt)
	case h.stall != s.cfg.StallAfter:
		return replyMismatch, fmt.Appendf(nil, "StallAfter is %v here, %v there", s.cfg.StallAfter, h.stall)
	case (h.purpose == PurposeControl || h.purpose == PurposeDeathWatch) && !s.isDialedBy(h.from):
		return replyMismatch, fmt.Appendf(nil, "rank %d does not dial rank %d", h.from, s.cfg.Rank)
	case h.stream != 0 && h.purpose != PurposeData && h.purpose != PurposeDirect: // of an origin
		return replyMismatch, fmt.Appendf(nil, "stream %d of a connection that has one", h.stream)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Usable() != nil {
		return replyFailed, s.outcome()
	}
	if h.purpose == PurposeProbe || h.purpose == PurposeDeathWatch {
		return replyWelcome, nil
	}
	c := admission{h.purpose, h.from, h.stream}
	if s.admitted[c] {
		return replyMismatch, fmt.Appendf(nil, "rank %d is connected already", h.from)
	}
	if h.purpose != PurposeControl {
		if refusal := s.data.Admit(h.purpose, h.from, h.stream); refusal != "" {
			return replyMismatch, []byte(refusal)
		}
	}
	s.admitted[c] = true
	return replyWelcome, nil
}

// adopt takes ownership of an admitted connection. err is the result of telling the peer so.
func (s *Session) adopt(h hello, conn net.Conn, err error) {
	switch {
	case h.purpose == PurposeProbe:
		_ = conn.Close()
	case h.purpose == PurposeDeathWatch && err != nil:
		closeUnwatched(conn)
	case h.purpose == PurposeDeathWatch:
		s.watch(h.from, conn)
	case err != nil:
		_ = conn.Close()
		s.Blame(h.from, err)
	case h.purpose == PurposeControl:
		s.attach(conn, h.from, s.neighbours.accepted)
	default:
		s.data.Adopt(h.purpose, h.from, h.stream, conn)
	}
}
