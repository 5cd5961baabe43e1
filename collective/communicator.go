package collective

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regroup-io/regroup/collective/schedule"
	"github.com/regroup-io/regroup/collective/shm"
)

// Communicator is one rank's membership in one generation. Its methods and the
// operations on it are safe for concurrent use; collective operations run one at a
// time in the order of the calls, which must be the same on all ranks. Send and
// Recv do not wait for them, only for each other per peer and direction.
type Communicator struct {
	opt  Options
	ring schedule.Place

	// life ends with the failure or with Close.
	life    context.Context //nolint:containedctx // the communicator's own end, not a caller's
	endLife context.CancelCauseFunc
	failure atomic.Pointer[error]
	failing sync.Mutex    // serialises fail
	quit    chan struct{} // closed by Close when nothing is left to be said
	tasks   sync.WaitGroup

	closing   atomic.Bool // set under mu
	mu        sync.Mutex
	ahead     map[int]*link // that this rank has dialled; nil = not yet
	behind    map[int]*link // that have dialled this rank
	admitted  map[int]bool  // of those
	joined    chan struct{} // closed when all are there
	lanes     map[int]*lane
	shares    chan share   // from the other ranks of this machine
	sharing   map[int]bool // of those
	paths     map[int]*path
	vigils    []func() // that end them
	closeOnce sync.Once

	turn    turn                      // of collective operations
	during  context.Context           //nolint:containedctx // that of the running operation; guarded by turn
	unwatch func() bool               // nil = it is not watched; likewise
	seq     uint64                    // guarded by turn
	ticket  [shm.DescriptorBytes]byte // of the running operation, which local ranks compare; likewise
	offsets []int                     // scratch, guarded by turn
	scaled  []int                     // likewise
	calls   calls
	waits   waits
	started started
	local   *shm.Group   // with the ranks of this machine; nil = none, see apart
	apart   error        // why there is none
	nodes   *nodes       // nil = all ranks share memory, or none do
	work    execution    // guarded by turn
	sender  bool         // its second thread runs; guarded by turn
	spins   int          // how often a thread looks before it sleeps
	busy    atomic.Int32 // operations that wait for peers

	looks        atomic.Int64 // ticks of the monitor
	waitingSince atomic.Int64 // the tick since which operations have been running all the time
	beside       beside

	reports atomic.Bool // New returns without an error: failures go to OnFailure
}

// New joins the generation: it dials its neighbours, the ranks at distances of 1, 2, 4 and
// so on, waits for those that dial it, and returns when all are connected. It ends with
// ctx, or when a neighbour is gone or refuses; the error names the option or the rank. A
// generation that failed to form is over: the next attempt needs a new one.
func New(ctx context.Context, o Options) (*Communicator, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	c := &Communicator{
		opt: o, ring: schedule.Place{World: o.World, Rank: o.Rank},
		quit: make(chan struct{}), joined: make(chan struct{}),
		ahead: map[int]*link{}, behind: map[int]*link{}, admitted: map[int]bool{},
		lanes: map[int]*lane{}, paths: map[int]*path{},
		shares: make(chan share, max(o.LocalSize, 1)), sharing: map[int]bool{},
		spins: spinsFor(o),
	}
	c.life, c.endLife = context.WithCancelCause(context.Background())
	c.work.init(c)
	if err := o.Endpoint.register(c); err != nil {
		return nil, err
	}
	c.tasks.Go(c.monitor)
	if err := c.join(ctx); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("join generation %d as rank %d of %d: %w", o.Generation, o.Rank, o.World, err)
	}
	return c, nil
}

func (c *Communicator) join(ctx context.Context) error {
	if c.opt.World > 1 {
		if err := c.connect(ctx); err != nil {
			return err
		}
		if err := c.share(ctx); err != nil {
			return err
		}
		if err := c.survey(ctx); err != nil {
			return err
		}
	}
	c.opt.Endpoint.maps.Prune() // the arenas of processes that are not in this generation
	if err := c.report(); err != nil {
		return err
	}
	c.keepVigil()
	return nil
}

// spinsFor is how often a thread that waits for a message looks for it before it sleeps:
// about 20 µs, less than waking up takes. With more ranks than processors on this machine
// it would keep the one from running that it waits for.
func spinsFor(o Options) int {
	local := o.LocalSize
	if local == 0 {
		local = o.World
	}
	if local > runtime.NumCPU() {
		return 0
	}
	return 64
}

// Rank is this process's place, 0 to World-1.
func (c *Communicator) Rank() int { return c.opt.Rank }

// World is the number of ranks.
func (c *Communicator) World() int { return c.opt.World }

// Generation is the number of the generation that this communicator belongs to.
func (c *Communicator) Generation() uint64 { return c.opt.Generation }

const (
	// byeFor is how long Close waits for a neighbour that is slow to read what was
	// sent to it, beyond which it relies on the system to deliver it.
	byeFor = 2 * time.Second
	// abortFor is the same after a failure. A neighbour that only learns of the
	// failure from the end of our connection would blame us.
	abortFor = 100 * time.Millisecond
)

// Close leaves the generation. Peers that still need this rank see a
// *PeerLostError with ErrLeft; if all ranks close after their last operation,
// nobody sees an error. A running operation ends with ErrClosed.
//
// It says goodbye and waits until its neighbours have read all that was sent to
// them, which is at once unless they are stuck: at most 2 s, or 100 ms after a
// failure. When it returns every goroutine of the communicator has ended. It
// always returns nil; closing again does nothing.
func (c *Communicator) Close() error {
	c.closeOnce.Do(c.close)
	return nil
}

// settle waits until the neighbours have heard everything, within bounds that hold for all
// of them together. A rank that is lost has nothing to hear.
func (c *Communicator) settle(links []*link) {
	within, enough := context.WithTimeout(context.Background(), byeFor)
	defer enough()
	defer context.AfterFunc(c.life, func() { time.AfterFunc(abortFor, enough) })()
	for _, l := range links {
		select {
		case <-l.settled:
			continue
		case <-within.Done():
			return
		case <-c.life.Done():
		}
		var lost *PeerLostError
		if errors.As(c.Failed(), &lost) && lost.Rank == l.peer {
			continue
		}
		select {
		case <-l.settled:
		case <-within.Done():
			return
		}
	}
}

func (c *Communicator) close() {
	c.mu.Lock()
	c.closing.Store(true)
	c.mu.Unlock()
	c.started.close()
	if c.Failed() == nil && c.busy.Load() > 0 {
		c.fail(ErrClosed)
	}
	links := c.links()
	for _, l := range links {
		if c.Failed() == nil {
			l.say(sayBye)
		}
	}
	c.settle(links)
	c.endVigil()
	c.opt.Endpoint.unregister(c, c.verdict())
	close(c.quit)
	c.endLife(ErrClosed)
	for _, l := range links {
		_ = l.conn.Close()
	}
	c.closeLanes()
	c.interrupt()
	for c.busy.Load() > 0 { // a call that has failed and is on its way out
		runtime.Gosched()
	}
	close(c.work.outgoing) // only now: a call waits for what it has handed over
	c.tasks.Wait()
	c.wires(wire.close)
	for len(c.shares) > 0 { // that came and were not wanted any more
		_ = (<-c.shares).conn.Close()
	}
	if c.local != nil {
		c.local.Close()
	}
}
