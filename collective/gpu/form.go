package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/nccl"
)

// form exchanges the topology with all ranks, and creates NCCL's communicator of this node, from
// the old one, which it consumes, or anew. reached is the progress of the old one's ranks.
func (e *Engine) form(ctx context.Context, old *nccl.Comm, reached progress) error {
	all, err := exchangeMemberInfo(ctx, e.comm, e.memberInfo(old, reached))
	if err != nil {
		return e.failWith(err)
	}
	if e.at, err = newTopology(all, e.comm.Rank()); err != nil {
		return err // all ranks get the same error, and the old one may still be used
	}
	plans := make([]plan, e.at.nodes())
	for i, first := range e.at.first {
		plans[i] = planOf(all[first : first+e.at.size[i]])
	}
	ctx, done := e.scope(ctx)
	defer done()
	if err := e.applyPlans(ctx, old, all, plans); err != nil {
		err = e.failWith(err)
		if end := e.discardAfterFailure(old, err); end != nil {
			return errors.Join(err, end)
		}
		return err
	}
	mine := plans[e.at.node]
	e.formedBy = string(mine)
	if mine != planKeep {
		e.origin = commOrigin{e.comm.Generation(), e.at.first[e.at.node]}
	}
	go e.watch()
	return nil
}

// applyPlans executes the plans of all nodes. It changes those that fail.
func (e *Engine) applyPlans(ctx context.Context, old *nccl.Comm, all []memberInfo, plans []plan) error {
	mine := e.at.node
	if plans[mine] == planKeep {
		e.local = old
	}
	if slices.Contains(plans, planShrink) {
		if err := e.tryShrink(ctx, old, all, plans); err != nil {
			return err
		}
	}
	if e.local == nil && old != nil {
		// No rank of this node needs it. All ranks of the node reach this point.
		if err := e.replace(ctx, old); err != nil {
			return err
		}
	}
	if !slices.Contains(plans, planNew) {
		return nil
	}
	var id nccl.UniqueID
	if plans[mine] == planNew && e.at.local == 0 {
		var err error
		if id, err = e.res.dev.Library().UniqueID(); err != nil {
			return err
		}
	}
	ids, err := e.comm.AllgatherBlobs(ctx, id[:])
	if err != nil || plans[mine] != planNew {
		return err
	}
	e.local, err = e.res.dev.Init(ctx, nccl.CommOptions{
		Rank: e.at.local, World: e.at.localSize(), ID: nccl.UniqueID(ids[e.at.first[mine]]),
		Stream: e.res.stream, Timeout: e.opt.Timeout,
	})
	return err
}

func (e *Engine) replace(ctx context.Context, c *nccl.Comm) error {
	ctx, cancel := context.WithTimeout(ctx, e.opt.StuckAfter)
	defer cancel()
	return c.Abort(ctx, errReplaced)
}

var errReplaced = errors.New("another communicator takes its place")

// tryShrink shrinks, and then all ranks learn on which nodes that has worked on all of them.
func (e *Engine) tryShrink(ctx context.Context, old *nccl.Comm, all []memberInfo, plans []plan) error {
	mine := e.at.node
	worked := int8(1)
	if plans[mine] == planShrink {
		var survivors []int
		for _, c := range all[e.at.first[mine] : e.at.first[mine]+e.at.localSize()] {
			survivors = append(survivors, c.Was)
		}
		e.tried = true
		limited, cancel := context.WithTimeout(ctx, e.opt.StuckAfter)
		next, err := old.Reform(limited, survivors)
		cancel()
		if err == nil {
			e.local = next
		} else {
			worked = 0
		}
	}
	votes := make([]int8, len(all))
	if err := collective.Allgather(ctx, e.comm, []int8{worked}, votes); err != nil {
		return err
	}
	for i, first := range e.at.first {
		if plans[i] == planShrink && slices.Contains(votes[first:first+e.at.size[i]], 0) {
			plans[i] = planNew
		}
	}
	if made := e.local; made != nil && plans[mine] == planNew {
		e.local = nil
		return e.replace(ctx, made)
	}
	return nil
}

// Next creates the engine of the next generation from this one, on the same GPU, with the same
// stream and pinned memory. It corresponds to New of new ranks, and returns the same errors.
// LocalRank and LocalSize are those of the new generation. NCCL's communicator is
//
//	kept      if the node has the same ranks, all had made the same progress, and nothing was running
//	shrunk    if there are no new ranks, and NCCL itself has reported no error
//	new       otherwise
//
// on which the ranks of each node agree through the new communicator. This engine is consumed then,
// and must not be closed. After an error it still exists, for the Next of another generation or
// Close. After ErrStuck no generation can use this process any more.
func (e *Engine) Next(ctx context.Context, c *collective.Communicator, localRank, localSize int) (*Engine, error) {
	o := e.opt
	o.LocalRank, o.LocalSize = localRank, localSize
	if err := o.validate(); err != nil {
		return nil, err
	}
	e.leave(ctx)
	if e.consumed {
		return nil, fmt.Errorf("engine: %w", nccl.ErrClosed)
	}
	if e.leaveErr != nil {
		c.Abort(e.leaveErr)
		return nil, e.leaveErr
	}
	for i, stage := range e.res.stages {
		if stage != nil && stage.Broken() != nil {
			e.res.stages[i] = nil
			if err := stage.Close(ctx); err != nil {
				c.Abort(err)
				return nil, err
			}
		}
	}
	next := newEngine(c, o, e.res)
	next.origin = e.origin
	if err := next.form(ctx, e.remaining, e.reached); err != nil {
		if e.remaining != nil && e.remaining.Ended() {
			e.remaining = nil
		}
		return nil, err
	}
	e.consumed = true
	return next, nil
}

// scope ends with ctx and with the communicator.
func (e *Engine) scope(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.comm.Context(), func() { cancel(e.comm.Failed()) })
	return ctx, func() { stop(); cancel(nil) }
}

// failWith fails the generation with an error of this rank, unless it has failed already, and
// returns why it did.
func (e *Engine) failWith(err error) error {
	e.reportFailure(err)
	failure := e.comm.Failed()
	var aborted *collective.AbortedError
	if failure == nil || errors.As(failure, &aborted) && aborted.Rank == e.comm.Rank() {
		return err // as observed here
	}
	if stuck(err) {
		return errors.Join(failure, err)
	}
	return failure
}

// discardAfterFailure ends the new communicator and the old one, if it cannot be used for a second
// attempt. The error says why it could not be ended.
func (e *Engine) discardAfterFailure(old *nccl.Comm, failure error) error {
	ctx, cancel := context.WithTimeout(context.Background(), e.opt.StuckAfter)
	defer cancel()
	var err error
	if e.local != nil && e.local != old {
		err = e.local.Abort(ctx, failure)
	}
	if old != nil && e.tried {
		err = errors.Join(err, old.Abort(ctx, failure))
	}
	e.local = nil
	return err
}
