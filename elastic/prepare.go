package elastic

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/internal/backoff"
	"github.com/regroup-io/regroup/elastic/statesync"
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

// prepareOutside has the program register its state while the others train, with the rank that it is to expect and with what
// the others did before. It calls then when nothing more can be done before this worker becomes a member.
func (r *runner) prepareOutside(ctx context.Context, a wire.Assignment, then func()) {
	defer then()
	p := &r.preparation
	fetching, cancel := context.WithTimeout(ctx, r.options.WarmWithin)
	defer cancel()
	if !r.fetchPrologue(fetching, a) || !p.begin() {
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

// fetchPrologue fetches the prologue from a holder. It returns false if none sends it in time.
func (r *runner) fetchPrologue(ctx context.Context, a wire.Assignment) bool {
	source := r.source(a)
	retry := backoff.Exponential{First: 100 * time.Millisecond, Max: time.Second}
	for {
		for _, holder := range source.Holders {
			b, err := statesync.FetchPrologue(ctx, r.endpoint, source, holder, 2*MaxPrologue)
			if err == nil && r.options.Prologue.extend(0, b) == nil {
				return true
			}
		}
		if !retry.Sleep(ctx) {
			return false
		}
	}
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
