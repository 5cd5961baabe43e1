package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regroup-io/regroup/collective"
)

// Options of a queue. Open or Comm is required; all ranks need the same ThresholdBytes.
type Options struct {
	Comm *collective.Communicator
	// Open makes the communicator when the first operation is submitted here; all ranks are
	// asked then. The queue closes it. nil = Comm is there, and stays the caller's.
	Open func(context.Context) (*collective.Communicator, error)
	// Memory makes the buffer in which tensors are packed, such as Endpoint.Alloc, and
	// Release gives it back; nil = ordinary memory.
	Memory  func(bytes int) ([]byte, error)
	Release func([]byte)
	// Result makes the memory of a result whose length is known only when the operation is
	// carried out; nil = ordinary memory.
	Result func(bytes int) ([]byte, error)
	// ThresholdBytes is up to how much is packed together. Zero means 64 MiB, negative
	// nothing.
	ThresholdBytes int
	// Cycle is how long the first pending operation waits for others to join it, unless a
	// thread waits for one. Zero means not at all: they are collected while an earlier cycle
	// runs.
	Cycle time.Duration
	// StallAfter is how long an operation may be pending until OnStall is told which ranks
	// have not submitted it. Zero means a minute, negative never.
	StallAfter time.Duration
	OnStall    func(Stall)
	// StallLimit is how long an operation may wait for ranks that have not submitted it, until
	// this rank aborts the communicator with a *StallError, so that all operations end on all
	// ranks. Zero means for ever.
	StallLimit time.Duration
	// DeadlockAfter is how long the programs of all ranks may wait, each for an operation that
	// some other rank has not submitted, until they get a *DeadlockError. Zero means 10 s,
	// negative never. See Handle.Waiting.
	DeadlockAfter time.Duration
	// Observe, if set, is called at each phase of an operation. It may be called by several
	// goroutines at once, and must return soon.
	Observe func(Event)
}

// Stall is an operation that some ranks have submitted and others have not.
type Stall struct {
	Name    string // empty = an operation of the queue itself
	Pending time.Duration
	Missing []int // ranks, as far as known
}

const (
	defaultThreshold = 64 << 20
	defaultStall     = time.Minute
	defaultDeadlock  = 10 * time.Second
	fruitless        = time.Millisecond // between cycles that found nothing
)

// ErrPending says that an operation of the same name has not ended yet.
var ErrPending = errors.New("an operation of this name is pending")

// MismatchError says that ranks submitted different things under one name.
type MismatchError struct {
	Name  string
	Kinds []string // by rank; empty = the rank has joined
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%q is not the same on all ranks: %q", e.Name, e.Kinds)
}

// DeadlockError says that the programs of all ranks wait for different operations, so that
// none can be carried out.
type DeadlockError struct {
	Waiting []string // what each rank waits for
}

func (e *DeadlockError) Error() string {
	return fmt.Sprintf("the ranks wait for different operations, by rank: %q", e.Waiting)
}

// JoinedError says that an operation cannot be carried out because ranks have joined.
type JoinedError struct {
	Name  string
	What  string
	Ranks []int
}

func (e *JoinedError) Error() string {
	return fmt.Sprintf("%q: no %s while ranks %v have joined", e.Name, e.What, e.Ranks)
}

// Queue is one rank's. Its methods are safe for concurrent use.
type Queue struct {
	*state
	waits bool // the caller waits right after it has submitted
}

// state is what all views of a queue share.
type state struct {
	opt    Options
	comm   *collective.Communicator // of who has the turn
	turn   chan struct{}            // full while a goroutine carries out cycles
	wake   chan struct{}            // something was submitted that nobody may wait for yet
	hurry  chan struct{}            // somebody waits
	done   chan struct{}
	opened atomic.Pointer[collective.Communicator] // that Close closes
	life   context.Context                         //nolint:containedctx // the queue's own end, not a caller's
	cancel context.CancelCauseFunc

	deadlocks atomic.Int64

	mu        sync.Mutex
	pending   map[string]*request
	order     []*request // of pending, as submitted
	submitted time.Time  // when the last of them was
	join      *Handle    // nil = this rank has not joined
	blocked   block
	failed    error

	// Of who has the turn.
	buffer []byte
	vote   []int64
	cycles int64 // the same on all ranks
	joined int64 // the cycle in which this rank was seen to have joined; 0 = it has not
}

// request is an operation that was submitted.
type request struct {
	name       string
	spec       Spec
	nameHash   int64
	bothHash   int64             // of name and spec
	tensor     collective.Tensor // of an Allreduce
	refused    bool              // it is there to fail, see Refuse
	do         func(context.Context) error
	handle     *Handle
	since      time.Time
	rollCalled bool // the other ranks know that it is pending
	reported   bool
	begun      bool        // all ranks have submitted it
	limit      *time.Timer // Options.StallLimit; nil = there is none
}

// New starts a queue. Close it before its communicator.
func New(o Options) *Queue {
	if o.ThresholdBytes == 0 {
		o.ThresholdBytes = defaultThreshold
	}
	if o.StallAfter == 0 {
		o.StallAfter = defaultStall
	}
	if o.DeadlockAfter == 0 {
		o.DeadlockAfter = defaultDeadlock
	}
	ordinary := func(n int) ([]byte, error) { return make([]byte, n), nil }
	if o.Memory == nil {
		o.Memory, o.Release = ordinary, func([]byte) {}
	}
	if o.Result == nil {
		o.Result = ordinary
	}
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	q := &Queue{state: &state{
		opt: o, comm: o.Comm, turn: make(chan struct{}, 1), wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
		done: make(chan struct{}), pending: map[string]*request{},
	}}
	q.life, q.cancel = context.WithCancelCause(context.Background())
	go q.run()
	return q
}

// Waited is the queue for a thread that calls Handle.Wait for each operation right after it has submitted it: the thread
// carries the operation out itself, and no other one has to wake up for it.
func (q *Queue) Waited() *Queue { return &Queue{state: q.state, waits: true} }

func (q *Queue) submit(r *request) *Handle {
	r.handle, r.since = newHandle(q), time.Now()
	r.nameHash, r.bothHash = hash(r.name), hash(r.name+"\x00"+r.spec.String())
	q.opt.Observe(Event{Phase: Submitted, Name: r.name, Method: r.spec.Method})
	if err := q.enqueue(r); err != nil {
		r.handle.end(err)
	}
	return r.handle
}

func (q *Queue) enqueue(r *request) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := q.pending[r.name]
	switch {
	case q.failed != nil:
		return q.failed
	case q.join != nil:
		return fmt.Errorf("%q: this rank has joined: %w", r.name, collective.ErrInvalid)
	case before != nil && before.refused && !before.rollCalled:
		q.remove(before) // nobody has heard of it
	case before != nil:
		return fmt.Errorf("%q: %w", r.name, ErrPending)
	}
	q.pending[r.name], q.submitted = r, r.since
	q.order = append(q.order, r)
	if q.opt.StallLimit > 0 {
		r.limit = time.AfterFunc(q.opt.StallLimit, func() { q.giveUp(r) })
	}
	if !q.waits {
		q.stir()
	}
	return nil
}

// stir has the goroutine look for work. The caller holds mu.
func (q *Queue) stir() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// remove takes a request out. The caller holds mu.
func (q *Queue) remove(r *request) {
	delete(q.pending, r.name)
	for i := range q.order {
		if q.order[i] == r {
			q.order = append(q.order[:i], q.order[i+1:]...)
			return
		}
	}
}

// take removes requests that are about to end.
func (q *Queue) take(all []*request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range all {
		delete(q.pending, r.name)
	}
	kept := q.order[:0]
	for _, r := range q.order {
		if q.pending[r.name] == r {
			kept = append(kept, r)
		}
	}
	clear(q.order[len(kept):])
	q.order = kept
}

// snapshot is what a cycle starts from.
func (q *Queue) snapshot() (pending []*request, joined *Handle, stuck bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]*request(nil), q.order...), q.join, q.stuck(q.opt.DeadlockAfter)
}

// Failed returns why no operation can succeed any more, or nil. It is set before the first operation ends for that reason.
func (q *Queue) Failed() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.failed
}

// fail ends everything that is pending and all that comes later.
func (q *Queue) fail(err error) {
	q.mu.Lock()
	if q.failed == nil {
		q.failed = err
	}
	err, over, join := q.failed, q.order, q.join
	q.order, q.pending, q.join = nil, map[string]*request{}, nil
	q.mu.Unlock()
	for _, r := range over {
		r.handle.end(err)
	}
	if join != nil {
		join.end(err)
	}
}

// Deadlocks is how many there were, the same on all ranks for who has got the error of the
// last one: names that are counted must be counted anew after each.
func (q *Queue) Deadlocks() int64 { return q.deadlocks.Load() }

// drainFor is how long Close waits for what is pending: what all ranks have ends at once, and the rest never.
const drainFor = 500 * time.Millisecond

// drain waits until nothing is pending, or for drainFor. Ranks that close together then all are between two cycles.
func (q *Queue) drain() {
	enough := time.NewTimer(drainFor)
	defer enough.Stop()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for q.any() {
		select {
		case <-look.C:
		case <-enough.C:
			return
		case <-q.done:
			return
		}
	}
}

// Close ends the queue, after half a second at most. What is still pending then fails with collective.ErrClosed. If it is in the
// middle of a cycle, that aborts a communicator of the caller's; one that the queue has opened
// is left, so that only ranks which still need this one notice.
func (q *Queue) Close() {
	q.drain()
	if c := q.opened.Load(); c != nil {
		_ = c.Close() // always nil
	}
	q.cancel(collective.ErrClosed)
	<-q.done
	if c := q.opened.Load(); c != nil {
		_ = c.Close() // it was opened meanwhile
	}
}
