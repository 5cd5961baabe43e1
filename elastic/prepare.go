package elastic

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/internal/prologue"
	"github.com/regroup-io/regroup/elastic/statesync"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// Stage tells how far the ranks of a session are.
type Stage int

// Stages.
const (
	// Training: the state is in sync.
	Training Stage = iota
	// Preparing: nobody has registered its state yet. Operations among all ranks work.
	Preparing
	// Replaying: others have registered their state and wait. This worker must register its state
	// too, and Prologue has the results of what it would have done with the others before. An
	// operation would meet nobody.
	Replaying
	// Candidate: this worker is not a member of a generation yet, and its Membership is the one to
	// expect if nothing else changes. There is no communicator. The others are training, and
	// Prologue has the results of what they did before.
	Candidate
	// Arranging: all ranks register their parts of a sharded state, see Sharding.
	Arranging
)

type preparation struct {
	mu    sync.Mutex
	begun bool          // by a candidate, or claimed by a generation: a candidate can begin no more
	ready chan struct{} // closed when a candidate's preparation has ended; nil = there is none
	err   error         // of it; valid after ready is closed
	done  bool          // the state is registered
}

// prepare calls Options.Prepare in a generation. Members that have prepared already wait in their
// sync.
func (r *runner) prepare(ctx, building context.Context, s *Session) error {
	p := &r.preparation
	if p.finished() {
		return nil
	}
	if ready := p.claim(); ready != nil { // it began when this worker was a candidate
		select {
		case <-ready:
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

// claim returns the channel of the preparation that this worker has begun as a candidate. If there
// is none, none can begin any more.
func (p *preparation) claim() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun = true
	return p.ready
}

// begin begins the preparation of a candidate. It returns false if a generation was faster.
func (p *preparation) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun {
		return false
	}
	p.begun, p.ready = true, make(chan struct{})
	return true
}

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

// prepareCandidate calls Options.Prepare while the others train, with the membership to expect and
// with the results of what the others did before. It calls then when nothing more can be done
// before this worker becomes a member.
func (r *runner) prepareCandidate(ctx context.Context, a workerprotocol.Assignment, then func()) {
	defer then()
	p := &r.preparation
	fetching, cancel := context.WithTimeout(ctx, r.options.PrefetchTimeout)
	defer cancel()
	if !r.fetchPrologue(fetching, a) || !p.begin() {
		return
	}
	e := a.Expect
	if e == nil {
		e = &workerprotocol.Expected{Rank: a.World, World: a.World + 1, LocalSize: 1, CrossRank: a.World, CrossSize: a.World + 1}
	}
	s := &Session{state: r.state, Stage: Candidate, Membership: Membership{
		Rank: e.Rank, World: e.World, LocalRank: e.LocalRank, LocalSize: e.LocalSize, CrossRank: e.CrossRank, CrossSize: e.CrossSize,
	}, Traceparent: cmp.Or(a.Trace, r.options.Traceparent)}
	p.err = r.options.Prepare(ctx, s)
	close(p.ready)
}

// fetchPrologue fetches the prologue from a holder. It returns false if none sends it in time.
func (r *runner) fetchPrologue(ctx context.Context, a workerprotocol.Assignment) bool {
	source := r.source(a)
	retry := wait.Backoff{First: 100 * time.Millisecond, Max: time.Second}
	for {
		for _, holder := range source.Holders {
			b, err := statesync.FetchPrologue(ctx, r.endpoint, source, holder, 2*prologue.MaxBytes)
			if err == nil && r.options.Prologue.Extend(0, b) == nil {
				return true
			}
		}
		if !retry.Sleep(ctx) {
			return false
		}
	}
}

// syncPrologue brings the prologue up to date on all members, and finds out whether some have
// registered their state already.
func (r *runner) syncPrologue(ctx context.Context, s *Session) error {
	p := r.options.Prologue
	mine := p.Len()
	all, err := s.comm.AllgatherBlobs(ctx, fmt.Appendf(nil, "%d %t", mine, r.preparation.finished()))
	if err != nil {
		return err
	}
	least, most, best := mine, mine, s.Rank
	s.Stage = Preparing
	for rank, b := range all {
		var entries int
		var prepared bool
		if _, err := fmt.Sscanf(string(b), "%d %t", &entries, &prepared); err != nil {
			return fmt.Errorf("rank %d does not say how far it is (%w): do all workers run the same program?", rank, err)
		}
		if prepared {
			s.Stage = Replaying
		}
		least = min(least, entries)
		if entries > most || entries == most && rank < best {
			most, best = entries, rank
		}
	}
	if least == most {
		return nil
	}
	var missing []byte
	if s.Rank == best {
		missing = p.Encode(least)
	}
	if all, err = s.comm.AllgatherBlobs(ctx, missing); err != nil {
		return err
	}
	return p.Extend(least, all[best])
}

// Prologue is what the ranks of a job did together before their state was registered.
type Prologue = prologue.Log
