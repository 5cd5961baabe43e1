package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/internal/serial"
	"github.com/regroup-io/regroup/collective/nccl"
)

// Options describe one rank of an Engine.
type Options struct {
	// Device is this rank's GPU. Nil: it has no usable one, for the reason Absent, which all ranks
	// receive.
	Device *nccl.Device
	Absent error

	// LocalSize is the number of ranks of this node. They are adjacent, each has a GPU of its own,
	// and this one is number LocalRank of them. Zero: it is alone.
	LocalRank, LocalSize int

	// ChunkBytes is how much of a buffer is exchanged between nodes at a time, see
	// nccl.StageOptions. All ranks must give the same, a multiple of 64.
	ChunkBytes int
	// Timeout is the timeout of NCCL for one step, see nccl.CommOptions. Zero: as long as the
	// communicator works, which detects processes that have died or are frozen. Timeout is for a
	// GPU or an NCCL that hangs although its process runs.
	Timeout time.Duration
	// StuckAfter is how long NCCL and copies may take to end after a failure before they count as
	// stuck. Zero: 10 s.
	StuckAfter time.Duration
	// Always uses NCCL even where a GPU is alone on its node, for checks on machines that have only
	// one. It must be the same on all ranks.
	Always bool
}

func (o *Options) validate() error {
	o.ChunkBytes = cmp.Or(o.ChunkBytes, 4<<20)
	o.LocalSize = cmp.Or(o.LocalSize, 1)
	o.StuckAfter = cmp.Or(o.StuckAfter, 10*time.Second)
	switch {
	case o.Device == nil && o.Absent == nil:
		return invalid("neither Device nor Absent is given")
	case o.Device != nil && o.Absent != nil:
		return invalid("both Device and Absent are given")
	case o.LocalRank < 0 || o.LocalRank >= o.LocalSize:
		return invalid("LocalRank %d is not within 0 to %d", o.LocalRank, o.LocalSize-1)
	case o.ChunkBytes < 0 || o.ChunkBytes%64 != 0:
		return invalid("ChunkBytes %d is no multiple of 64", o.ChunkBytes)
	case o.Timeout < 0 || o.StuckAfter < 0:
		return invalid("Timeout %v or StuckAfter %v is negative", o.Timeout, o.StuckAfter)
	}
	return nil
}

// Engine performs the collectives of one generation on GPUs: intra-node through NCCL, and
// inter-node through pinned memory of the host and the generation's communicator.
//
// An operation works on memory of the device, given as a Buffer, and begins after what the caller
// has queued on its stream. It returns at once with a Task, and tasks run one after the other; all
// ranks must start the same ones in the same order. While one is running, nothing else may use the
// communicator's operations: Synchronize waits until none is.
//
// The generation fails as a whole, once and for good: when the communicator fails so does NCCL, and
// the other way around. Every rank returns the communicator's error, which names the lost rank if
// there is one. The results of running operations are void and their buffers undefined. The GPU may
// still write to them until Close or Next has returned.
type Engine struct {
	comm *collective.Communicator
	opt  Options
	res  *resources
	at   topology

	local    *nccl.Comm // NCCL among the GPUs of this node; nil = not needed
	origin   commOrigin // of local
	formedBy string     // how local was created, for Describe
	tried    bool       // shrinking the old one was attempted

	// Set when Next or Close leaves the engine.
	leaving   sync.Once
	remaining *nccl.Comm // to continue with or to end
	leaveErr  error
	consumed  bool // Next or Close has taken what the engine held

	lifetime context.Context //nolint:containedctx // ends with the engine; its cause is the failure
	end      context.CancelCauseFunc
	started  chan struct{} // a task has begun; capacity 1
	broken   chan error    // the error of this rank; capacity 1
	finished chan struct{} // closed when no task is running any more
	watched  chan struct{} // closed when the watch has ended

	queue    serial.Queue // of tasks
	reached  progress     // used by the goroutine that runs tasks, like inFlight
	inFlight []*nccl.Work // launches that may be running

	mu          sync.Mutex
	strayEvents []*nccl.Event // to free
	stuck       error
}

// New creates this rank's part of an engine. All ranks of the communicator must call it, or Next,
// as if it were an operation.
//
// If one of them has no GPU, or two of a node have the same, all get an error of
// nccl.ErrUnavailable that names them and the reason, and the communicator continues to work: use
// that instead. If ranks disagree on what must be equal, all get nccl.ErrInvalid likewise. After
// any other error the communicator has failed.
func New(ctx context.Context, c *collective.Communicator, o Options) (*Engine, error) {
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
		e.res = &resources{dev: o.Device, stream: stream, opt: o}
	}
	if err := e.form(ctx, nil, progress{}); err != nil {
		if e.res != nil {
			err = errors.Join(err, e.res.close(ctx))
		}
		return nil, err
	}
	return e, nil
}

func newEngine(c *collective.Communicator, o Options, s *resources) *Engine {
	e := &Engine{
		comm: c, opt: o, res: s,
		started: make(chan struct{}, 1), broken: make(chan error, 1), finished: make(chan struct{}), watched: make(chan struct{}),
	}
	e.lifetime, e.end = context.WithCancelCause(context.Background())
	return e
}

// Device is the engine's GPU.
func (e *Engine) Device() *nccl.Device { return e.res.dev }

// Err is why the generation has failed, or nil. It is also of ErrStuck once NCCL could not be
// ended.
func (e *Engine) Err() error {
	if e.lifetime.Err() == nil {
		return nil
	}
	if stuck := e.stuckWith(); stuck != nil {
		return errors.Join(context.Cause(e.lifetime), stuck)
	}
	return context.Cause(e.lifetime)
}

func (e *Engine) stuckWith() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stuck
}

// Describe returns a description of what the engine uses.
func (e *Engine) Describe() string {
	d := e.res.dev
	s := fmt.Sprintf("GPU %d: %s; ", d.Ordinal(), cmp.Or(d.Info().Name, "unknown"))
	if e.local == nil {
		s += "alone on its node"
	} else {
		s += fmt.Sprintf("%d GPUs here through NCCL %v (%s)", e.at.localSize(), d.Library().Version(), e.formedBy)
	}
	if e.at.nodes() > 1 {
		s += fmt.Sprintf(", %d nodes over connections", e.at.nodes())
	}
	return s
}

// resources are what an engine uses on its GPU and passes on to the next engine.
type resources struct {
	dev    *nccl.Device
	stream *nccl.Stream // of NCCL, and of copies on the GPU
	stages [2]*nccl.Stage
	opt    Options
}

// stage returns one of two stages, and creates it when it is first needed.
func (s *resources) stage(ctx context.Context, i int) (_ *nccl.Stage, err error) {
	if s.stages[i] == nil {
		s.stages[i], err = s.dev.NewStage(ctx, nccl.StageOptions{ChunkBytes: s.opt.ChunkBytes, DrainAfter: s.opt.StuckAfter})
		if err != nil {
			return nil, err
		}
	}
	return s.stages[i], nil
}

func (s *resources) close(ctx context.Context) error {
	err := s.stream.Close(ctx)
	for i, stage := range s.stages {
		if stage != nil {
			err = errors.Join(err, stage.Close(ctx))
			s.stages[i] = nil
		}
	}
	if err != nil {
		return fmt.Errorf("device %d: %w", s.dev.Ordinal(), err)
	}
	return nil
}

// Close waits for what was started and frees what the engine holds, except the device and the
// communicator. All ranks of the node must call it before they close the communicator; if that has
// ended, NCCL is aborted. An error of ErrStuck says that the process must restart. After a
// successful Next it does nothing.
func (e *Engine) Close(ctx context.Context) error {
	e.leave(ctx)
	if e.consumed {
		return nil
	}
	e.consumed = true
	if e.leaveErr != nil {
		return e.leaveErr
	}
	var err error
	switch local := e.remaining; {
	case local == nil:
	case local.Err() == nil && e.comm.Context().Err() == nil && e.comm.Failed() == nil:
		err = local.Close(ctx)
	default:
		err = local.Abort(ctx, nccl.ErrClosed)
	}
	if stuck(err) {
		return err
	}
	return errors.Join(err, e.res.close(ctx))
}

// Quiesce is for a generation that has failed: it waits until NCCL has been ended and nothing that
// was started uses its buffers any more. Afterwards Err also says whether that failed.
func (e *Engine) Quiesce() {
	e.queue.Close()
	e.queue.Wait()
	<-e.watched
}

// leave ends the engine, once, when no task is running any more.
func (e *Engine) leave(ctx context.Context) {
	e.leaving.Do(func() { e.remaining, e.leaveErr = e.finish(ctx) })
}

// finish returns NCCL's communicator, if it can still be used or must be ended.
func (e *Engine) finish(ctx context.Context) (*nccl.Comm, error) {
	e.queue.Close()
	// An operation cannot be taken back, so the end of ctx aborts the generation.
	stop := context.AfterFunc(ctx, func() { e.comm.Abort(context.Cause(ctx)) })
	e.queue.Wait()
	for _, w := range e.inFlight {
		if e.Err() == nil {
			if err := w.Wait(e.lifetime); err != nil {
				_ = e.failAndWait(err) // the waiter of the task gets the error
			}
		}
	}
	stop()
	close(e.finished)
	<-e.watched
	e.end(nccl.ErrClosed)
	if err := e.stuckWith(); err != nil {
		return nil, err
	}
	// Events of what has finished have passed; those of what was aborted are not queried again.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.opt.StuckAfter)
	defer cancel()
	if err := e.freeEvents(ctx); err != nil || e.local == nil || e.local.Ended() {
		return nil, err
	}
	return e.local, nil
}

func (e *Engine) freeEvents(ctx context.Context) error {
	for _, w := range e.inFlight {
		if err := w.Free(ctx); err != nil {
			return err
		}
	}
	for _, event := range e.strayEvents {
		if err := event.Free(ctx); err != nil {
			return err
		}
	}
	e.inFlight, e.strayEvents = nil, nil
	return nil
}

func stuck(err error) bool { return errors.Is(err, nccl.ErrStuck) }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{nccl.ErrInvalid}, args...)...)
}
