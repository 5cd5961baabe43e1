package collective

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regroup-io/regroup/collective/schedule"
)

// Communicator is one rank's membership in one generation. Its methods and the
// operations on it are safe for concurrent use; collective operations run one at a
// time in the order of the calls, which must be the same on all ranks. Send and
// Recv do not wait for them, only for each other per peer and direction.
type Communicator struct {
	opt  Options
	ring schedule.Ring

	// life ends with the failure or with Close.
	life    context.Context //nolint:containedctx // the communicator's own end, not a caller's
	endLife context.CancelCauseFunc
	failure atomic.Pointer[error]
	failing sync.Mutex    // serialises fail
	quit    chan struct{} // closed by Close when nothing is left to be said
	tasks   sync.WaitGroup

	mu         sync.Mutex
	closing    bool
	prevTaken  bool
	next, prev *link
	joined     chan struct{} // closed when both are there
	lanes      map[int]*lane
	closeOnce  sync.Once

	turn    chan struct{} // held by the running collective operation
	seq     uint64        // guarded by turn
	work    work          // guarded by turn
	posts   chan *work    // what the reader of prev shall receive
	scratch []byte        // one chunk, used by the reader of prev
	busy    atomic.Int32  // operations that wait for peers
	reports atomic.Bool   // New has returned: failures go to OnFailure
}

// New joins the generation: it dials the next rank of the ring, waits for the
// previous one, and returns when both are connected. It ends with ctx, or when a
// neighbour is gone or refuses; the error names the option or the rank. A
// generation that failed to form is over: the next attempt needs a new one.
func New(ctx context.Context, o Options) (*Communicator, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	c := &Communicator{
		opt: o, ring: schedule.Ring{World: o.World, Rank: o.Rank},
		quit: make(chan struct{}), joined: make(chan struct{}), lanes: map[int]*lane{},
		turn: make(chan struct{}, 1), posts: make(chan *work, 1),
		scratch: alignedBytes(o.ChunkBytes),
	}
	c.life, c.endLife = context.WithCancelCause(context.Background())
	c.work.init()
	if err := o.Endpoint.register(c); err != nil {
		return nil, err
	}
	c.tasks.Go(c.monitor)
	if o.World > 1 {
		if err := c.connect(ctx); err != nil {
			_ = c.Close()
			return nil, fmt.Errorf("join generation %d as rank %d of %d: %w", o.Generation, o.Rank, o.World, err)
		}
	}
	c.reports.Store(true)
	return c, nil
}

// connect returns when the ring is closed around this rank, or the failure.
func (c *Communicator) connect(ctx context.Context) error {
	// Ends with life and not with ctx, whose end is turned into a failure first: the
	// peer that is being dialled is then told of it.
	dialing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	dialed := make(chan error, 1)
	go func() {
		conn, err := c.dial(dialing, c.ring.Next(), forRing)
		if err == nil {
			c.attach(conn, c.ring.Next(), true)
		}
		dialed <- err
	}()
	for pending := dialed; ; {
		select {
		case <-c.joined:
			if pending != nil {
				<-pending
			}
			return c.Failed()
		case err := <-pending:
			pending = nil
			if err != nil && c.Failed() == nil && ctx.Err() == nil {
				c.failDial(err)
			}
		case <-c.life.Done():
			cancel()
			if pending != nil {
				<-pending
			}
			return c.Failed()
		case <-ctx.Done():
			cause := fmt.Errorf("%s: %w", c.missing(), context.Cause(ctx))
			c.fail(&AbortedError{Rank: c.opt.Rank, Generation: c.opt.Generation, Cause: cause})
		}
	}
}

// failDial fails the generation because the next rank can not be had.
func (c *Communicator) failDial(err error) {
	switch {
	case isVerdict(err):
		c.fail(err) // the next rank told how the generation ended there
	case errors.Is(err, ErrRefused):
		c.fail(&AbortedError{Rank: c.opt.Rank, Generation: c.opt.Generation, Cause: err})
	default:
		c.blame(c.ring.Next(), err)
	}
}

func (c *Communicator) missing() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.next == nil && c.prev == nil:
		return fmt.Sprintf("neither rank %d nor rank %d is there", c.ring.Next(), c.ring.Prev())
	case c.next == nil:
		return fmt.Sprintf("rank %d is not there", c.ring.Next())
	}
	return fmt.Sprintf("rank %d is not there", c.ring.Prev())
}

// attach makes a connection a link of the ring and starts its two goroutines.
func (c *Communicator) attach(conn net.Conn, peer int, forward bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := newLink(c, conn, peer, forward)
	if c.closing {
		// The peer was welcomed a moment ago. Without a word it would blame us.
		_ = conn.SetWriteDeadline(time.Now().Add(sayAbort))
		_ = l.send(head{kind: frameAbort}, c.verdict())
		_ = conn.Close()
		return
	}
	if forward {
		c.next = l
	} else {
		c.prev = l
	}
	// A communicator that has failed in the meantime starts them all the same: the
	// writer then has just one thing to say.
	c.tasks.Go(l.write)
	c.tasks.Go(l.read)
	if c.next != nil && c.prev != nil {
		close(c.joined)
	}
}

// Rank is this process's place, 0 to World-1.
func (c *Communicator) Rank() int { return c.opt.Rank }

// World is the number of ranks.
func (c *Communicator) World() int { return c.opt.World }

// Generation is the number of the generation that this communicator belongs to.
func (c *Communicator) Generation() uint64 { return c.opt.Generation }

func (c *Communicator) links() []*link {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*link
	for _, l := range []*link{c.next, c.prev} {
		if l != nil {
			all = append(all, l)
		}
	}
	return all
}

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
// It says goodbye and waits until both neighbours have read all that was sent to
// them, which is at once unless they are stuck: at most 2 s, or 100 ms after a
// failure. When it returns every goroutine of the communicator has ended. It
// always returns nil; closing again does nothing.
func (c *Communicator) Close() error {
	c.closeOnce.Do(c.close)
	return nil
}

func (c *Communicator) close() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	if c.Failed() == nil && c.busy.Load() > 0 {
		c.fail(ErrClosed)
	}
	limit := time.NewTimer(byeFor)
	defer limit.Stop()
	links := c.links()
	for _, l := range links {
		if c.Failed() == nil {
			l.say(sayBye)
		}
	}
	for _, l := range links {
		select {
		case <-l.settled:
		case <-c.life.Done():
			limit.Reset(abortFor)
			select {
			case <-l.settled:
			case <-limit.C:
			}
		case <-limit.C:
		}
	}
	c.opt.Endpoint.unregister(c, c.verdict())
	close(c.quit)
	c.endLife(ErrClosed)
	for _, l := range links {
		_ = l.conn.Close()
	}
	c.closeLanes()
	c.tasks.Wait()
}
