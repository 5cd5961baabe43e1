package elastic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/collective"
)

// Stage tells how far the ranks of a session are.
type Stage int

// Stages.
const (
	// Training: the state is in sync.
	Training Stage = iota
	// Together: nobody has registered its state yet. Operations among all ranks work.
	Together
	// Late: others have registered their state and wait. This worker must do so too, and gets from Prologue what it would have
	// done with them before. An operation would meet nobody.
	Late
	// Aside: this worker is in no generation yet, and Place is what it will be if nothing else changes. There is no communicator. The others
	// train, and what they did before is in Prologue.
	Aside
)

// preparation is the program's part before its state is registered.
type preparation struct {
	mu    sync.Mutex
	begun bool          // aside; in a generation it begins anew with each
	ready chan struct{} // closed when it is through, aside; nil = it has not begun
	err   error         // of it, after ready
	done  bool          // the state is registered
}

// prepare has the program register its state, in a generation whose communicator stands. Others that have done so wait in their sync.
func (r *runner) prepare(ctx, building context.Context, s *Session) error {
	p := &r.preparation
	if p.finished() {
		return nil
	}
	if aside := p.claim(); aside != nil { // the program is at it since before this generation
		select {
		case <-aside:
			return p.end(p.err, r.state)
		case <-building.Done():
			if err := s.comm.Failed(); err != nil {
				return err
			}
			return fmt.Errorf("%w: %w", collective.ErrAborted, context.Cause(building))
		}
	}
	return p.end(r.options.Prepare(ctx, s), r.state)
}

func (p *preparation) finished() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// claim returns the channel of a preparation that goes on aside; without one, none can begin any more.
func (p *preparation) claim() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun = true
	return p.ready
}

// begin tells whether the program may be asked aside, and takes note of it.
func (p *preparation) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun {
		return false
	}
	p.begun, p.ready = true, make(chan struct{})
	return true
}

// end takes note of a state that is registered.
func (p *preparation) end(err error, s *State) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = nil
	if err == nil && s.err != nil {
		err = s.err
	}
	p.done = err == nil
	return err
}

// aside has the program register its state while the others train: with the place that it is to expect, and with what they did
// before. It calls back when nothing more can be done before this worker is let in.
func (r *runner) aside(ctx context.Context, a wire.Assignment, then func()) {
	defer then()
	p := &r.preparation
	within, cancel := context.WithTimeout(ctx, r.options.WarmWithin)
	defer cancel()
	if !r.readAside(within, a) || !p.begin() {
		return
	}
	e := a.Expect
	if e == nil {
		e = &wire.Expected{Rank: a.World, World: a.World + 1, LocalSize: 1, CrossRank: a.World, CrossSize: a.World + 1}
	}
	s := &Session{state: r.state, Stage: Aside, Place: Place{
		Rank: e.Rank, World: e.World, LocalRank: e.LocalRank, LocalSize: e.LocalSize, CrossRank: e.CrossRank, CrossSize: e.CrossSize,
	}}
	p.err = r.options.Prepare(ctx, s)
	close(p.ready)
}

// readAside fetches the prologue from a holder; false if nobody gives it in time.
func (r *runner) readAside(ctx context.Context, a wire.Assignment) bool {
	w := &warmUp{job: r.options.Job, address: r.endpoint.Addr(), endpoint: r.endpoint}
	for wait := warmRetry; ; wait = min(2*wait, time.Second) {
		for _, holder := range a.Peers {
			if err := w.readPrologue(ctx, holder, a, r.options.Prologue); err == nil {
				return true
			}
		}
		if !pause(ctx, wait) {
			return false
		}
	}
}

func (w *warmUp) readPrologue(ctx context.Context, holder string, a wire.Assignment, p *Prologue) error {
	conn, err := w.visit(ctx, holder, a)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(visitStall))
	if err := writeMessage(conn, askPrologue, nil); err != nil {
		return err
	}
	answer, body, err := readMessage(conn, 2*MaxPrologue)
	switch {
	case err != nil:
		return err
	case answer != answerYes:
		return errHolder
	}
	return p.extend(0, body)
}

// met is what a member says of itself at the begin of a generation.
type met struct {
	entries  int
	prepared bool
}

// meet brings the prologue up to date on all members, and finds out whether some have registered their state already.
func (r *runner) meet(ctx context.Context, s *Session) error {
	p := r.options.Prologue
	mine := met{entries: p.Len(), prepared: r.preparation.finished()}
	all, err := s.comm.AllgatherBlobs(ctx, fmt.Appendf(nil, "%d %t", mine.entries, mine.prepared))
	if err != nil {
		return err
	}
	least, most, best := mine.entries, mine.entries, s.Rank
	s.Stage = Together
	for rank, b := range all {
		var m met
		if _, err := fmt.Sscanf(string(b), "%d %t", &m.entries, &m.prepared); err != nil {
			return fmt.Errorf("rank %d does not say how far it is (%w): do all workers run the same program?", rank, err)
		}
		if m.prepared {
			s.Stage = Late
		}
		least = min(least, m.entries)
		if m.entries > most || m.entries == most && rank < best {
			most, best = m.entries, rank
		}
	}
	if least == most {
		return nil
	}
	var give []byte
	if s.Rank == best {
		give = p.encode(least)
	}
	if all, err = s.comm.AllgatherBlobs(ctx, give); err != nil {
		return err
	}
	return p.extend(least, all[best])
}

// enterAside asks for the first place of a worker whose state is not registered. Where others train already it is
// registered meanwhile, so that nobody has to wait for that; otherwise together with them.
func (r *runner) enterAside(ctx context.Context) (wire.Assignment, error) {
	through, mayJoin := context.WithCancel(ctx)
	defer mayJoin()
	asideCtx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	r.endAside = func() {
		stop()
		running.Wait()
	}
	request := wire.JoinRequest{Address: r.endpoint.Addr(), Cold: r.options.WarmWithin > 0}
	var warm *wire.Assignment
	for {
		a, err := r.joinUnless(ctx, through, request)
		switch {
		case ctx.Err() != nil:
			return a, context.Cause(ctx)
		case errors.Is(err, errMayJoin):
			aside := r.preparation.claim()
			if aside == nil { // nobody has answered: the state is registered in the next generation
				request.Cold = false
				continue
			}
			<-aside
			if err := r.preparation.end(r.preparation.err, r.state); err != nil {
				return a, err
			}
			return r.enter(ctx, warm)
		case err == nil && a.Verdict == wire.WarmUp:
			request.Holders = a.Generation
			first := warm == nil
			warm = &a
			if first {
				running.Go(func() { r.aside(asideCtx, a, mayJoin) })
			}
		default:
			return a, err
		}
	}
}
