package collective

import "context"

// taker waits for the turn of an operation. It returns what ends the turn.
type taker func(ctx context.Context) (func(), error)

// take is for operations that are called: they come after all that were started before.
func (c *Communicator) take(ctx context.Context) (func(), error) {
	if err := c.afterStarted(ctx); err != nil {
		return nil, err
	}
	return c.takeTurn(ctx)
}

func (c *Communicator) takeTurn(ctx context.Context) (func(), error) {
	if err := c.gate(); err != nil {
		return nil, err
	}
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.life.Done():
		return nil, c.ended()
	}
	err := context.Cause(ctx)
	if err == nil {
		// busy before gate: Close sets closing first and looks at busy then, so that
		// one of the two sees the other.
		c.busy.Add(1)
		if err = c.gate(); err == nil {
			c.waitingSince.Store(c.looks.Load())
			return c.endTurn, nil
		}
		c.busy.Add(-1)
	}
	<-c.turn
	return nil, err
}

func (c *Communicator) endTurn() {
	c.busy.Add(-1)
	<-c.turn
}

// ended is why life is over.
func (c *Communicator) ended() error {
	if failure := c.Failed(); failure != nil {
		return failure
	}
	return ErrClosed
}
