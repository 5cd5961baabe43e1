package control

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regroup-io/regroup/collective/internal/frame"
)

const (
	// beatsPerStall is how many heartbeats are sent at least within the stall limit.
	beatsPerStall = 8
	// ticksPerBeat is how often the monitor looks for silent neighbours between two heartbeats.
	ticksPerBeat = 8
	// stallTicks is the stall limit in ticks.
	stallTicks = beatsPerStall * ticksPerBeat
)

// activity counts what waits for peers. A silent neighbour is lost only if something has been
// waiting for the stall limit. Time is counted in ticks of the monitor: a process that goes on
// after SIGSTOP sees one tick, and does not take its neighbours for silent.
type activity struct {
	ticks      atomic.Int64
	operations atomic.Int32
	since      atomic.Int64 // the tick since which operations have been running all the time

	mu            sync.Mutex
	external      int   // waiters outside of the session's operations
	externalSince int64 // the tick since which there has been one all the time
}

// stalled reports whether something has been waiting for the stall limit or longer.
func (a *activity) stalled(tick int64) bool {
	if a.operations.Load() > 0 && tick-a.since.Load() > stallTicks {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.external > 0 && tick-a.externalSince > stallTicks
}

// awaitExternal counts a waiter, until done is called.
func (a *activity) awaitExternal() (done func()) {
	add := func(n int) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.external == 0 {
			a.externalSince = a.ticks.Load()
		}
		a.external += n
	}
	add(1)
	return sync.OnceFunc(func() { add(-1) })
}

// BeginWait counts an operation that may wait for peers, until EndWait.
func (s *Session) BeginWait() {
	a := &s.activity
	if now := a.ticks.Load(); a.operations.Load() == 0 && a.since.Load() != now {
		a.since.Store(now)
	}
	a.operations.Add(1)
}

// EndWait ends what BeginWait began.
func (s *Session) EndWait() { s.activity.operations.Add(-1) }

// Busy reports whether an operation is running.
func (s *Session) Busy() bool { return s.activity.operations.Load() > 0 }

// AwaitExternal counts a waiter outside of the session's operations, until done is called.
func (s *Session) AwaitExternal() (done func()) { return s.activity.awaitExternal() }

// monitor sends heartbeats, detects silent neighbours and reports the failure.
func (s *Session) monitor() {
	ticker := time.NewTicker(s.cfg.StallAfter / stallTicks)
	defer ticker.Stop()
	defer s.reportFailure()
	for before := uint64(0); ; {
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
			tick := s.activity.ticks.Add(1)
			stalled := s.activity.stalled(tick)
			if tick%ticksPerBeat == 0 {
				s.waits.endPeriod(s.cfg.Rank, s.data.WaitTime(), time.Now())
			}
			now := s.ops.newest().Seq
			slow := s.Busy() && now == before // the operation lasts: each tick sends a heartbeat, so that a mismatch is found soon
			before = now
			for _, l := range s.links() {
				if tick%ticksPerBeat == 0 || slow {
					l.queue(frame.Heartbeat)
				}
				if l.silent.Add(1) > stallTicks && stalled {
					s.Fail(s.Lost(l.peer, ErrSilent))
				}
			}
		}
	}
}

func (s *Session) reportFailure() {
	failure := s.Failed()
	if failure != nil && !errors.Is(failure, ErrClosed) && s.reports.Load() && s.cfg.OnFailure != nil {
		s.cfg.OnFailure(failure)
	}
}

// opLog holds the newest operations of this rank. Heartbeats carry the last of them: two ranks in
// different operations may never get a message from each other, and find the difference so.
type opLog struct {
	mu     sync.Mutex
	recent [16]frame.Descriptor // by sequence number modulo 16
	last   uint64
}

// BeginOp records an operation.
func (s *Session) BeginOp(d frame.Descriptor) {
	o := &s.ops
	o.mu.Lock()
	defer o.mu.Unlock()
	o.recent[d.Seq%uint64(len(o.recent))], o.last = d, d.Seq
}

func (o *opLog) newest() frame.Descriptor {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.recent[o.last%uint64(len(o.recent))]
}

// differs returns this rank's operation with the sequence number of d, if it is another operation.
func (o *opLog) differs(d frame.Descriptor) (mine frame.Descriptor, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	mine = o.recent[d.Seq%uint64(len(o.recent))]
	return mine, mine.Seq == d.Seq && mine != d
}
