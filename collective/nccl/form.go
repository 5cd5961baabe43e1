package nccl

import (
	"context"
	"errors"
	"slices"

	"github.com/regroup-io/regroup/collective"
)

// form agrees with all ranks about who is where, and makes NCCL's communicator of this
// node out of an old one, which is used up, or anew. The old one's ranks have reached
// something, or nothing if there is none.
func (e *Engine) form(ctx context.Context, old *Comm, reached position) error {
	all, err := introduce(ctx, e.comm, e.card(old, reached))
	if err != nil {
		return e.give(err)
	}
	if e.at, err = survey(all, e.comm.Rank()); err != nil {
		return err // all ranks say the same, and the old one may still be of use
	}
	plans := make([]plan, e.at.nodes())
	for i, first := range e.at.first {
		plans[i] = planOf(all[first : first+e.at.size[i]])
	}
	ctx, done := e.scope(ctx)
	defer done()
	if err := e.carryOn(ctx, old, all, plans); err != nil {
		err = e.give(err)
		if end := e.unmake(old, err); end != nil {
			return errors.Join(err, end)
		}
		return err
	}
	mine := plans[e.at.node]
	e.way = string(mine)
	if mine != keeps {
		e.origin = origin{e.comm.Generation(), e.at.first[e.at.node]}
	}
	go e.watch()
	return nil
}

// carryOn follows the plans of all nodes. It changes those that turn out not to work.
func (e *Engine) carryOn(ctx context.Context, old *Comm, all []card, plans []plan) error {
	mine := e.at.node
	if plans[mine] == keeps {
		e.local = old
	}
	if slices.Contains(plans, shrink) {
		if err := e.tryShrink(ctx, old, all, plans); err != nil {
			return err
		}
	}
	if e.local == nil && old != nil {
		// Nobody here needs it. All ranks of the node are at this point.
		if err := e.replace(ctx, old); err != nil {
			return err
		}
	}
	if !slices.Contains(plans, anew) {
		return nil
	}
	var id UniqueID
	if plans[mine] == anew && e.at.local == 0 {
		var err error
		if id, err = e.seat.dev.lib.UniqueID(); err != nil {
			return err
		}
	}
	ids, err := e.comm.AllgatherBlobs(ctx, id[:])
	if err != nil || plans[mine] != anew {
		return err
	}
	e.local, err = e.seat.dev.Init(ctx, CommOptions{
		Rank: e.at.local, World: e.at.here(), ID: UniqueID(ids[e.at.first[mine]]),
		Stream: e.seat.stream, Patience: e.opt.Patience,
	})
	return err
}

// replace ends a communicator in whose place another comes.
func (e *Engine) replace(ctx context.Context, c *Comm) error {
	ctx, cancel := context.WithTimeout(ctx, e.opt.StuckAfter)
	defer cancel()
	return c.Abort(ctx, errReplaced)
}

var errReplaced = errors.New("another communicator takes its place")

// tryShrink shrinks, and then all ranks learn on which nodes that has worked on all of them.
func (e *Engine) tryShrink(ctx context.Context, old *Comm, all []card, plans []plan) error {
	mine := e.at.node
	worked := int8(1)
	if plans[mine] == shrink {
		survivors := Survivors{}
		for _, c := range all[e.at.first[mine] : e.at.first[mine]+e.at.here()] {
			survivors.Ranks = append(survivors.Ranks, c.Was)
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
		if plans[i] == shrink && slices.Contains(votes[first:first+e.at.size[i]], 0) {
			plans[i] = anew
		}
	}
	if made := e.local; made != nil && plans[mine] == anew {
		e.local = nil
		return e.replace(ctx, made)
	}
	return nil
}
