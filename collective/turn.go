package collective

import "context"

// take waits for the turn of an operation. It returns what ends the turn.
func (c *Communicator) take(ctx context.Context) (func(), error) {
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
		c.beginToWait()
		if err = c.gate(); err == nil {
			return c.endTurn, nil
		}
		c.busy.Add(-1)
	}
	<-c.turn
	return nil, err
}

// beginToWait counts an operation. It waits for peers since the first of those that run.
func (c *Communicator) beginToWait() {
	if c.busy.Load() == 0 {
		c.waitingSince.Store(c.looks.Load())
	}
	c.busy.Add(1)
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
