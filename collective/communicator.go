package collective

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/regroup-io/regroup/collective/internal/control"
	"github.com/regroup-io/regroup/collective/internal/exec"
)

// Communicator is one rank's membership in one generation. Its methods and the operations on it are
// safe for concurrent use; collective operations run one at a time in the order of the calls, which
// must be the same on all ranks. Send and Recv do not wait for them, only for each other per peer
// and direction.
type Communicator struct {
	*member
	origin Origin
}

// member is what the communicators of all origins have in common.
type member struct {
	opt       Options
	session   *control.Session
	engine    *exec.Engine
	closeOnce sync.Once
}

// New joins the generation: it dials its neighbours, the ranks at distances of 1, 2, 4 and so on,
// waits for those that dial it, and returns when all are connected. It ends with ctx, or when a
// neighbour is lost or refuses; the error names the option or the rank. A generation that failed to
// form is over: the next attempt needs a new one.
func New(ctx context.Context, o Options) (*Communicator, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	c := &Communicator{member: &member{opt: o}}
	c.session = control.New(control.Config{
		Job: o.Job, Generation: o.Generation, Token: o.Token, Rank: o.Rank, World: o.World,
		Endpoint: o.Endpoint.acceptor, Peers: o.Peers, StallAfter: o.StallAfter, Settings: o.settings(),
		OnFailure: o.OnFailure,
	})
	c.engine = exec.New(c.session, exec.Config{
		Rank: o.Rank, World: o.World, LocalRank: o.LocalRank, LocalSize: o.LocalSize,
		NoSharedMemory: o.NoSharedMemory, StallAfter: o.StallAfter, ChunkBytes: o.ChunkBytes,
		Streams: o.Streams, Table: o.table, InlineBytes: o.InlineBytes, NewConn: o.Endpoint.newConn,
		Arena: o.Endpoint.sharedArena, Mappings: o.Endpoint.mappings,
	})
	if err := c.session.Start(c.engine); err != nil {
		return nil, err
	}
	if err := c.join(ctx); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("join generation %d as rank %d of %d: %w", o.Generation, o.Rank, o.World, err)
	}
	return c, nil
}

func (c *Communicator) join(ctx context.Context) error {
	if c.opt.World > 1 {
		stop := c.engine.Dial(ctx)
		defer stop()
		if err := c.session.Connect(ctx); err != nil {
			return err
		}
		if err := c.engine.Connect(ctx); err != nil {
			return err
		}
	}
	c.opt.Endpoint.mappings.Prune() // arenas of processes that are not in this generation
	return c.session.Confirm(c.engine.SharesMemory)
}

// Origin tells the operations of different callers on one communicator apart. The program's own are
// of origin 0.
type Origin uint8

// OriginElastic is the origin of the operations of package elastic.
const OriginElastic Origin = 1

// OriginShards is the origin of the parts of a sharded state that package elastic sends. 2 is that
// of the Python package's follow.
const OriginShards Origin = 3

// WithOrigin returns the same communicator, for operations of another origin. They have one order
// with all others: a rank whose operation is of another origin than that of its peers gets a
// *DivergedError, as all of them do, however equal the two look. Messages of Send are received by
// Recv of the same origin alone, and keep no order with others. Closing any of them closes all.
func (c *Communicator) WithOrigin(o Origin) *Communicator {
	return &Communicator{member: c.member, origin: o}
}

// Rank is this process's rank, 0 to World-1.
func (c *Communicator) Rank() int { return c.opt.Rank }

// World is the number of ranks.
func (c *Communicator) World() int { return c.opt.World }

// Generation is the number of the generation that this communicator belongs to.
func (c *Communicator) Generation() uint64 { return c.opt.Generation }

// Describe returns how this rank communicates with the others, for people.
func (c *Communicator) Describe() string { return c.engine.Describe() }

// Failed returns why the communicator is poisoned, or nil.
func (c *Communicator) Failed() error { return c.session.Failed() }

// Abort poisons the communicator on all ranks: every pending and later call here returns within
// milliseconds. If cause is or wraps a *PeerLostError, all ranks report that rank as lost;
// otherwise an *AbortedError naming this rank. The first failure wins; later ones change nothing.
// It does not wait for anything, and does not replace Close.
func (c *Communicator) Abort(cause error) { c.session.Abort(cause) }

// Context ends soon after the communicator has failed or was closed: Failed tells which. It is for
// work beside the communicator that ends with it, such as the collectives of GPUs.
func (c *Communicator) Context() context.Context { return c.session.Context() }

// AwaitExternal says that something outside of the communicator waits for all ranks, until done is
// called: as during an operation, a neighbour whose process is silent for StallAfter is lost. Close
// does not wait for done.
func (c *Communicator) AwaitExternal() (done func()) { return c.session.AwaitExternal() }

// Straggler is the rank that the others wait for.
type Straggler = control.Straggler

// Slowest names the rank that waits least, which the others wait for, if half of the known ranks
// wait for a tenth of the time more. The news travel with the heartbeats, so they are as old as a
// few of them, and cost no message of their own. In large worlds only the ranks that wait least are
// known.
func (c *Communicator) Slowest() (Straggler, bool) { return c.session.Slowest() }

// Waited returns the part of the last second or so, 0 to 1, for which this rank's operations slept
// until another rank sent something; nil = unknown.
func (c *Communicator) Waited() *float64 { return c.session.Waited() }

// Stragglers returns the neighbours of this rank that had not begun its newest operation at their
// last heartbeat: a rank that waits, waits for one of them, or for one that a rank in between waits
// for.
func (c *Communicator) Stragglers() []int { return c.session.Stragglers() }

// Close leaves the generation. Peers that still need this rank see a *PeerLostError with ErrLeft;
// if all ranks close after their last operation, nobody sees an error. A running operation ends
// with ErrClosed.
//
// Close says goodbye and waits until its neighbours have read all that was sent to them, which is
// at once unless they are stuck: at most 2 s, or 100 ms after a failure. When it returns every
// goroutine of the communicator has ended. It always returns nil; closing again does nothing.
func (c *Communicator) Close() error {
	c.closeOnce.Do(c.close)
	return nil
}

func (c *Communicator) close() {
	c.session.BeginClose()
	c.session.Leave()
	c.engine.Interrupt()
	for c.session.Busy() { // an operation that has failed and is about to return
		runtime.Gosched()
	}
	c.engine.Stop()
	c.session.Wait()
	c.engine.Close()
}
