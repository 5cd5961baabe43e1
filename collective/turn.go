package collective

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// turn is held by the running operation. Whoever waits for it gets it in the order of
// asking; while nobody else wants it, it costs two atomic instructions.
type turn struct {
	held    atomic.Bool
	asking  atomic.Int32 // len of waiting
	mu      sync.Mutex
	waiting []chan struct{}
}

// take returns nil when the turn is the caller's, or the channel that is closed then.
func (t *turn) take() (granted chan struct{}) {
	if t.asking.Load() == 0 && t.held.CompareAndSwap(false, true) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	granted = make(chan struct{})
	t.waiting = append(t.waiting, granted)
	t.asking.Add(1)
	t.next() // it may have become free in between, and then nobody else grants it
	return granted
}

// next grants a free turn to the first that waits. The caller holds mu.
func (t *turn) next() {
	if len(t.waiting) > 0 && t.held.CompareAndSwap(false, true) {
		close(t.waiting[0])
		t.waiting = slices.Delete(t.waiting, 0, 1)
		t.asking.Add(-1)
	}
}

func (t *turn) release() {
	t.held.Store(false)
	if t.asking.Load() > 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.next()
	}
}

// give up asking.
func (t *turn) giveUp(granted chan struct{}) {
	t.mu.Lock()
	i := slices.Index(t.waiting, granted)
	if i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
		t.asking.Add(-1)
	}
	t.mu.Unlock()
	if i < 0 {
		t.release() // it was granted in the same moment
	}
}

// taker waits for the turn of an operation; endTurn ends it.
type taker func(ctx context.Context) error

// take is for operations that are called: they come after all that were started before.
func (c *Communicator) take(ctx context.Context) error {
	if err := c.afterStarted(ctx); err != nil {
		return err
	}
	return c.takeTurn(ctx)
}

func (c *Communicator) takeTurn(ctx context.Context) error {
	if err := c.gate(); err != nil {
		return err
	}
	if granted := c.turn.take(); granted != nil {
		select {
		case <-granted:
		case <-ctx.Done():
			c.turn.giveUp(granted)
			return context.Cause(ctx)
		case <-c.life.Done():
			c.turn.giveUp(granted)
			return c.ended()
		}
	}
	if ctx.Err() != nil {
		c.turn.release()
		return context.Cause(ctx)
	}
	// busy before gate: Close sets closing first and looks at busy then, so that one of
	// the two sees the other.
	c.beginToWait()
	if err := c.gate(); err != nil {
		c.endTurn()
		return err
	}
	return nil
}

// beginToWait counts an operation. It waits for peers since the first of those that run.
func (c *Communicator) beginToWait() {
	if now := c.looks.Load(); c.busy.Load() == 0 && c.waitingSince.Load() != now {
		c.waitingSince.Store(now)
	}
	c.busy.Add(1)
}

func (c *Communicator) endTurn() {
	c.busy.Add(-1)
	c.turn.release()
}

// brief is up to how many bytes an operation is over, most often, before a watch over its
// context would be set up.
const brief = 16 << 10

// begin notes what the turn is used for. Small operations are watched from the moment in
// which they sleep.
func (c *Communicator) begin(ctx context.Context, k call, bytes int) {
	// Long before it is read: a processor waits where it reads at once, by wider steps, what it has just written.
	head{kind: frameData, call: k}.put(c.ticket[:])
	c.calls.begin(k)
	c.during = ctx
	if bytes > brief {
		c.watchNow()
	}
}

// watchNow watches the context of the running operation.
func (c *Communicator) watchNow() {
	if c.unwatch == nil {
		c.unwatch = c.watch(c.during)
	}
}

// finish ends what begin has begun.
func (c *Communicator) finish() {
	if c.unwatch != nil {
		c.unwatch()
	}
	c.unwatch, c.during = nil, nil
}

// ended is why life is over.
func (c *Communicator) ended() error {
	if failure := c.Failed(); failure != nil {
		return failure
	}
	return ErrClosed
}
