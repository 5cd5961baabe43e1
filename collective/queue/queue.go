package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regroup-io/regroup/collective"
)

// Options of a queue. Open or Comm is required; all ranks need the same ThresholdBytes.
type Options struct {
	Comm *collective.Communicator
	// Open connects the communicator when the first operation is submitted; all ranks call it then.
	// The queue closes it. nil = Comm is connected, and remains the caller's.
	Open func(context.Context) (*collective.Communicator, error)
	// Result allocates results whose length is known only when the operation runs; nil = ordinary
	// memory.
	Result func(bytes int) ([]byte, error)
	// ThresholdBytes is the largest fusion of operations. Zero means 64 MiB, negative none.
	ThresholdBytes int
	// Cycle is how long the first pending operation waits for others to be fused with, unless a
	// thread waits for one. Zero means not at all: operations are collected while the previous
	// cycle runs.
	Cycle time.Duration
	// StallAfter is how long an operation may be pending until OnStall is told which ranks have not
	// submitted it. Zero means a minute, negative never.
	StallAfter time.Duration
	OnStall    func(Stall)
	// StallLimit is how long an operation may wait for ranks that have not submitted it, until this
	// rank aborts the communicator with a *StallError, which ends all operations on all ranks. Zero
	// means for ever.
	StallLimit time.Duration
	// DeadlockAfter is how long the programs of all ranks may wait, each for an operation that some
	// other rank has not submitted, until they get a *DeadlockError. Zero means 10 s, negative
	// never. See Handle.Waiting.
	DeadlockAfter time.Duration
	// Observe, if set, is called at each phase of an operation. It may be called concurrently, and
	// must return soon.
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
	idleDelay        = time.Millisecond // between cycles that found nothing
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

// Queue is one rank's queue of named operations. Its methods are safe for concurrent use.
type Queue struct {
	*state
	synchronous bool // the caller waits right after it has submitted
}

// state is what all views of a queue share.
type state struct {
	opt       Options
	comm      *collective.Communicator // used by the holder of cycleLock
	cycleLock chan struct{}            // full while a goroutine runs cycles
	wake      chan struct{}            // something was submitted
	urgent    chan struct{}            // a thread waits for an operation
	done      chan struct{}
	opened    atomic.Pointer[collective.Communicator] // closed by Close
	ctx       context.Context                         //nolint:containedctx // the queue's own end, not a caller's
	cancel    context.CancelCauseFunc

	deadlocks atomic.Int64

	mu        sync.Mutex
	pending   map[string]*request
	order     []*request // of pending, in the order of submission
	submitted time.Time  // when the last one was submitted
	join      *Handle    // nil = this rank has not joined
	blocked   programWait
	failed    error

	// Used by the holder of cycleLock.
	buffer []byte
	vote   []int64
	cycles int64 // the same on all ranks
	joined int64 // the cycle in which this rank was seen to have joined; 0 = it has not
}

type request struct {
	name         string
	spec         Spec
	nameHash     int64
	nameSpecHash int64             // of name and spec
	tensor       collective.Tensor // of an Allreduce
	refused      bool              // submitted by Refuse, to fail
	do           func(context.Context) error
	handle       *Handle
	since        time.Time
	negotiated   bool // the other ranks know that it is pending
	reported     bool
	begun        bool        // all ranks have submitted it
	limit        *time.Timer // Options.StallLimit; nil = none
}

// New starts a queue. Close it before its communicator.
func New(o Options) *Queue {
	o.ThresholdBytes = cmp.Or(o.ThresholdBytes, defaultThreshold)
	o.StallAfter = cmp.Or(o.StallAfter, defaultStall)
	o.DeadlockAfter = cmp.Or(o.DeadlockAfter, defaultDeadlock)
	if o.Result == nil {
		o.Result = func(n int) ([]byte, error) { return make([]byte, n), nil }
	}
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	q := &Queue{state: &state{
		opt: o, comm: o.Comm, cycleLock: make(chan struct{}, 1), wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1),
		done: make(chan struct{}), pending: map[string]*request{},
	}}
	q.ctx, q.cancel = context.WithCancelCause(context.Background())
	go q.run()
	return q
}

// Synchronous returns a view of the queue for a thread that calls Handle.Wait for each operation
// right after it has submitted it: the thread runs the operation itself, and no other thread has to
// wake up.
func (q *Queue) Synchronous() *Queue { return &Queue{state: q.state, synchronous: true} }

func (q *Queue) submit(r *request) *Handle {
	r.handle, r.since = newHandle(q), time.Now()
	r.nameHash, r.nameSpecHash = hash(r.name), hash(r.name+"\x00"+r.spec.String())
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
	case before != nil && before.refused && !before.negotiated:
		q.removeAll([]*request{before}) // no other rank knows of it
	case before != nil:
		return fmt.Errorf("%q: %w", r.name, ErrPending)
	}
	q.pending[r.name], q.submitted = r, r.since
	q.order = append(q.order, r)
	if q.opt.StallLimit > 0 {
		r.limit = time.AfterFunc(q.opt.StallLimit, func() { q.abortStalled(r) })
	}
	if !q.synchronous {
		q.wakeUp()
	}
	return nil
}

// wakeUp makes the queue's goroutine look for work. The caller holds mu.
func (q *Queue) wakeUp() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// removeAll removes requests that are about to end, and not what has replaced one. The caller holds
// mu.
func (q *Queue) removeAll(all []*request) {
	for _, r := range all {
		if q.pending[r.name] == r {
			delete(q.pending, r.name)
		}
	}
	q.order = slices.DeleteFunc(q.order, func(r *request) bool { return q.pending[r.name] != r })
}

// snapshot is the input of a cycle.
func (q *Queue) snapshot() (pending []*request, joined *Handle, blocked bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]*request(nil), q.order...), q.join, q.programBlocked(q.opt.DeadlockAfter)
}

// Failed returns why no operation can succeed any more, or nil. It is set before the first
// operation ends for that reason.
func (q *Queue) Failed() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.failed
}

// fail ends everything that is pending, and all that is submitted later.
func (q *Queue) fail(err error) {
	q.mu.Lock()
	if q.failed == nil {
		q.failed = err
	}
	err, ended, join := q.failed, q.order, q.join
	q.order, q.pending, q.join = nil, map[string]*request{}, nil
	q.mu.Unlock()
	for _, r := range ended {
		r.handle.end(err)
	}
	if join != nil {
		join.end(err)
	}
}

// Deadlocks is the number of deadlocks, the same on all ranks for a caller that has the error of
// the last one. Callers that number their names must start anew after each.
func (q *Queue) Deadlocks() int64 { return q.deadlocks.Load() }

// drainFor is how long Close waits for pending operations: those that all ranks have end at once,
// the others never.
const drainFor = 500 * time.Millisecond

// drain waits until nothing is pending, or for drainFor. Ranks that close together are between two
// cycles then.
func (q *Queue) drain() {
	enough := time.After(drainFor)
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for q.hasWork() {
		select {
		case <-look.C:
		case <-enough:
			return
		case <-q.done:
			return
		}
	}
}

// Close ends the queue, after half a second at most. What is still pending then fails with
// collective.ErrClosed. If a cycle is running, that aborts a communicator of the caller; one that
// the queue has opened is closed, so that only ranks that still need this one notice.
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
