package collective

import (
	"context"
	"fmt"
)

// Dup connects the ranks once more, for operations that run beside those of c and have an
// order of their own, like MPI_Comm_dup. All ranks call it with the same name, each name
// once. When one of the two fails, both have failed. Close it before c.
func (c *Communicator) Dup(ctx context.Context, name string) (*Communicator, error) {
	if name == "" {
		return nil, invalid("the name of a duplicate is empty")
	}
	if err := c.gate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.life, func() { cancel(c.ended()) })()
	o := c.opt
	o.Job += "/" + name
	o.OnFailure = func(failure error) { c.fail(failure) }
	d, err := New(ctx, o)
	if err != nil {
		if failure := c.gate(); failure != nil {
			err = failure
		}
		return nil, fmt.Errorf("duplicate %q: %w", name, err)
	}
	stop := context.AfterFunc(c.life, func() { d.fail(c.ended()) })
	context.AfterFunc(d.life, func() { stop() })
	return d, nil
}
