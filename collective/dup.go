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
	o := c.opt
	o.Job += "/" + name
	o.OnFailure = func(failure error) { c.fail(failure) }
	d, err := c.connectAgain(ctx, o, func(failure error) error { return failure })
	if err != nil {
		return nil, fmt.Errorf("duplicate %q: %w", name, err)
	}
	return d, nil
}

// connectAgain makes a further communicator that fails with c. seen is c's failure as that
// one states it.
func (c *Communicator) connectAgain(ctx context.Context, o Options, seen func(error) error) (*Communicator, error) {
	if failure := c.gate(); failure != nil {
		return nil, seen(failure)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.life, func() { cancel(c.ended()) })()
	d, err := New(ctx, o)
	if err != nil {
		if failure := c.gate(); failure != nil {
			err = seen(failure)
		}
		return nil, err
	}
	stop := context.AfterFunc(c.life, func() { d.fail(seen(c.ended())) })
	context.AfterFunc(d.life, func() { stop() })
	return d, nil
}
