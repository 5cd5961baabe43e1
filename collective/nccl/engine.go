package nccl

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/regroup-io/regroup/collective"
)

// EngineOptions describe one rank of an Engine.
type EngineOptions struct {
	// Device is this rank's GPU. Nil: it has none to use, for the reason Absent, which all
	// ranks are told.
	Device *Device
	Absent error

	// LocalSize is the number of ranks of this node; they are adjacent, each has a GPU of
	// its own, and this one is number LocalRank of them. Zero: it is alone.
	LocalRank, LocalSize int

	// ChunkBytes is how much of a buffer goes between the nodes at a time, and Depth how many
	// chunks are under way, see StageOptions. All ranks must give the same ChunkBytes, a
	// multiple of 64.
	ChunkBytes, Depth int
	// Patience is the longest that NCCL may take for one step, see CommOptions. Zero: as long
	// as the communicator works, which notices processes that are gone or frozen. It is for a
	// GPU or an NCCL that hangs although its process runs.
	Patience time.Duration
	// StuckAfter is how long NCCL and the copies may take to end after a failure, before they
	// are given up as stuck. Zero: 10 s.
	StuckAfter time.Duration
	// Always uses NCCL also where a GPU is alone on its node, for checks on machines that
	// have but one. The same on all ranks.
	Always bool
}

func (o *EngineOptions) validate() error {
	if o.ChunkBytes == 0 {
		o.ChunkBytes = 4 << 20
	}
	if o.LocalSize == 0 {
		o.LocalSize = 1
	}
	if o.StuckAfter == 0 {
		o.StuckAfter = drainAfter
	}
	switch {
	case o.Device == nil && o.Absent == nil:
		return invalid("neither Device nor Absent is given")
	case o.Device != nil && o.Absent != nil:
		return invalid("both Device and Absent are given")
	case o.LocalRank < 0 || o.LocalRank >= o.LocalSize:
		return invalid("LocalRank %d is not within 0 to %d", o.LocalRank, o.LocalSize-1)
	case o.ChunkBytes < 0 || o.ChunkBytes%64 != 0:
		return invalid("ChunkBytes %d is no multiple of 64", o.ChunkBytes)
	case o.Depth < 0 || o.Patience < 0 || o.StuckAfter < 0:
		return invalid("Depth %d, Patience %v or StuckAfter %v is negative", o.Depth, o.Patience, o.StuckAfter)
	}
	return nil
}

// Engine makes the collectives of one generation on GPUs: inside a node through NCCL, and
// between nodes through pinned memory of the host and the generation's communicator.
//
// An operation works on memory of the device, named by a Buffer, and begins behind what the
// caller has queued on its stream. It returns at once with a Task, and tasks are carried out
// one after the other; all ranks must start the same ones in the same order. While one is
// under way nobody else may use the communicator's operations: Settle waits until none is.
//
// The generation fails as a whole, once and for good: when the communicator fails so does
// NCCL, and the other way around, and every rank returns the communicator's error, which
// names the rank that was lost if one was. What an operation did is void and its buffers
// hold anything. The GPU may still write to them until Close or Next has returned.
type Engine struct {
	comm *collective.Communicator
	opt  EngineOptions
	seat *seat
	at   layout

	local  *Comm  // NCCL among the GPUs of this node; nil = it is not needed
	origin origin // of local
	way    string // how local came to be, for people
	tried  bool   // it was to be shrunk out of an old one

	// When the engine is being left, by Next or Close.
	leaving sync.Once
	remains *Comm // NCCL's, to go on with or to end
	left    error
	gone    bool // another engine has the seat, or nobody

	life    context.Context //nolint:containedctx // the engine's own end; its cause is the failure
	end     context.CancelCauseFunc
	begun   chan struct{} // something is being carried out; holds one
	broken  chan error    // what went wrong on this rank; holds one
	over    chan struct{} // closed when nothing is under way any more
	watched chan struct{} // closed when the watch has ended
	stuck   error         // guarded by queue.mu

	queue   queue
	reached position  // of whoever carries tasks out, as is the next
	flight  []*Work   // launches that may be under way
	strays  []uintptr // events to give back; guarded by queue.mu
}

// NewEngine makes this rank's part of an engine. All ranks of the communicator must call it,
// or Next, as if it were an operation.
//
// If one of them has no GPU, or two of a node have the same, all get an error of
// ErrUnavailable that names them and the reason, and the communicator works on: use that instead. Likewise if they disagree about
// what must be the same, with ErrInvalid. After any other error the communicator has failed.
func NewEngine(ctx context.Context, c *collective.Communicator, o EngineOptions) (*Engine, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	e := newEngine(c, o, nil)
	if o.Device != nil {
		stream, err := o.Device.NewStream(ctx)
		if err != nil {
			c.Abort(err)
			return nil, err
		}
		e.seat = &seat{dev: o.Device, stream: stream, opt: o}
	}
	if err := e.form(ctx, nil, position{}); err != nil {
		if e.seat != nil {
			err = errors.Join(err, e.seat.close(ctx))
		}
		return nil, err
	}
	return e, nil
}

func newEngine(c *collective.Communicator, o EngineOptions, s *seat) *Engine {
	e := &Engine{
		comm: c, opt: o, seat: s,
		begun: make(chan struct{}, 1), broken: make(chan error, 1), over: make(chan struct{}), watched: make(chan struct{}),
	}
	e.life, e.end = context.WithCancelCause(context.Background())
	return e
}

// Device is where it works.
func (e *Engine) Device() *Device { return e.seat.dev }

// Communicator is what it was made of.
func (e *Engine) Communicator() *collective.Communicator { return e.comm }

// Err is why the generation has failed, nil while it works. It is also of ErrStuck once
// NCCL could not be ended.
func (e *Engine) Err() error {
	if e.life.Err() == nil {
		return nil
	}
	if stuck := e.stuckWith(); stuck != nil {
		return errors.Join(context.Cause(e.life), stuck)
	}
	return context.Cause(e.life)
}

func (e *Engine) stuckWith() error {
	e.queue.mu.Lock()
	defer e.queue.mu.Unlock()
	return e.stuck
}

// Describe tells people what is used.
func (e *Engine) Describe() string {
	l := e.seat.dev.lib
	name := "unknown"
	if list, err := l.Devices(); err == nil && e.seat.dev.ordinal < len(list) {
		name = list[e.seat.dev.ordinal].Name
	}
	s := fmt.Sprintf("GPU %d: %s; ", e.seat.dev.ordinal, name)
	if e.local == nil {
		s += "alone on its node"
	} else {
		s += fmt.Sprintf("%d GPUs here through NCCL %v (%s)", e.at.here(), l.version, e.way)
	}
	if e.at.nodes() > 1 {
		s += fmt.Sprintf(", %d nodes over connections", e.at.nodes())
	}
	return s
}
