package checkpointwriter

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/checkpoint"
	"github.com/regroup-io/regroup/elastic/shards"
	"github.com/regroup-io/regroup/elastic/statesync"
)

// Proposal is what a rank says of checkpoints of parts with a commit; the maximum over all ranks is
// what they agree on.
type Proposal struct {
	ID      int64 // of the set of parts that begins with this commit
	Due     int64 // 1 = a checkpoint of this commit shall be written
	Busy    int64 // 1 = this rank still writes, or cannot
	Failed  int64 // 1 = it could not write its parts
	Pending int64 // 1 = it has written parts that are not known to be whole
}

// ProposalOf is the inverse of Values.
func ProposalOf(v []int64) Proposal { return Proposal{v[0], v[1], v[2], v[3], v[4]} }

// Values are for an operation that finds the maximum.
func (p Proposal) Values() []int64 { return []int64{p.ID, p.Due, p.Busy, p.Failed, p.Pending} }

// sharded is the state of a writer of parts. It belongs to the goroutine of the program, but for
// err.
type sharded struct {
	set     *checkpoint.Set // what is written, or was and is not known to be whole
	pinned  *shards.Pinned
	began   time.Time
	written checkpoint.Name // the last one that is whole
	err     error           // of the last write; guarded by mu
}

var errOthers = errors.New("another rank could not write its parts")

// Propose says what this rank has to say with a commit. At the end of the training a checkpoint is
// due unless the directory is temporary.
func (w *Writer) Propose(rank int, end bool) Proposal {
	if w == nil {
		return Proposal{Busy: 1}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var p Proposal
	due := w.again || time.Since(w.began) >= w.Every
	if end {
		due = !w.Temporary
	}
	if rank == 0 {
		p.ID = 1 + rand.Int64N(1<<62)
		p.Due = number(due)
	}
	p.Busy, p.Failed, p.Pending = number(w.busy), number(w.sharded.err != nil), number(w.sharded.set != nil)
	return p
}

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// Decide does what the ranks have agreed on with a commit, which is the newest of state. must says
// that this commit must be written.
func (w *Writer) Decide(agreed Proposal, must bool, rank, world int, state *shards.State) {
	if w == nil {
		return
	}
	w.mu.Lock()
	if must && agreed.Busy != 0 {
		w.again = true
	}
	w.mu.Unlock()
	if agreed.Busy != 0 {
		return
	}
	finished := w.conclude(agreed, rank, state)
	switch {
	case agreed.Due != 0 || must:
		w.start(finished, uint64(agreed.ID), rank, world, state)
	case finished != nil:
		w.background(finished)
	}
}

func (w *Writer) background(f func() error) {
	w.mu.Lock()
	w.busy = true
	w.mu.Unlock()
	w.tasks.Go(func() {
		err := f()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.busy, w.sharded.err = false, err
	})
}

// conclude returns what to do about the parts that this rank has written, now that all ranks have;
// nil = nothing.
func (w *Writer) conclude(agreed Proposal, rank int, state *shards.State) func() error {
	x := &w.sharded
	if x.set == nil {
		return nil
	}
	set, began := *x.set, x.began
	state.Unpin(x.pinned)
	x.set, x.pinned = nil, nil
	w.mu.Lock()
	failed := x.err
	x.err = nil
	w.mu.Unlock()
	switch {
	case set.Name.Generation != state.Last().Generation:
		// The members have changed meanwhile: it may lack parts of those that are lost.
		w.mu.Lock()
		w.again = true
		w.mu.Unlock()
		return nil
	case agreed.Failed != 0:
		return func() error {
			if failed == nil && rank == 0 {
				w.complain(set.Name, errOthers)
			}
			if err := w.Dir.AbandonParts(set); err != nil {
				w.complain(set.Name, err)
			}
			return nil
		}
	}
	x.written = set.Name
	w.mu.Lock()
	w.written, w.since = set.Name, began
	w.mu.Unlock()
	return func() error {
		if err := errors.Join(w.Dir.FinishParts(set), w.Dir.PruneParts(set)); err != nil {
			w.complain(set.Name, err)
		} else if rank == 0 {
			w.report(set.Name, w.Dir.PartsPath(set), began)
		}
		return nil
	}
}

// start writes this rank's parts of the newest commit, when it has done what comes before.
func (w *Writer) start(before func() error, id uint64, rank, world int, state *shards.State) {
	s, unpin := w.Store.PinNewest()
	pinned := state.Pin()
	n, err := w.name(s)
	set := checkpoint.Set{Name: n, ID: id}
	x := &w.sharded
	x.set, x.pinned, x.began = &set, pinned, time.Now()
	w.mu.Lock()
	w.began, w.again = x.began, false
	w.mu.Unlock()
	image := w.image(n, s)
	image.Parts, image.Sharded = &set, pinned.Tensors
	if rank > 0 {
		unpin()
		unpin, image = func() {}, checkpoint.Image{}
	}
	w.background(func() error {
		defer unpin()
		if rank == 0 {
			w.Store.Reserve(s) // so that the trainer can commit meanwhile
		}
		if before != nil {
			_ = before()
		}
		if err == nil {
			err = w.writeParts(set, pinned, image, rank, world)
		}
		if err != nil {
			w.complain(n, err)
		}
		return err
	})
}

func (w *Writer) writeParts(set checkpoint.Set, pinned *shards.Pinned, image checkpoint.Image, rank, world int) error {
	bytes := pinned.Bytes
	if image.Parts != nil {
		bytes += image.Bytes()
	}
	if err := w.ask(bytes); err != nil {
		return err
	}
	parts, err := pinned.Parts()
	if err != nil {
		return err
	}
	if err := w.Dir.WriteParts(w.ctx, set, rank, world, parts); err != nil || image.Parts == nil {
		return err
	}
	return w.Dir.Write(w.ctx, image)
}

// FlushParts returns when the newest commit, which all ranks have just made, is on disk, or cannot
// be written. All ranks call it.
func (w *Writer) FlushParts(ctx context.Context, c *collective.Communicator, state *shards.State) error {
	newest := state.Last()
	for started := false; ; {
		w.Wait()
		p := w.Propose(c.Rank(), false)
		if p.Due = 0; w != nil && c.Rank() == 0 && !started {
			n := w.sharded.written
			p.Due = number(statesync.Commit{Generation: n.Generation, Step: n.Step} != newest)
		}
		v := p.Values()
		if err := collective.Allreduce(ctx, c, v, collective.Max); err != nil {
			return err
		}
		switch p = ProposalOf(v); {
		case p.Busy != 0: // a rank that has no directory
			return nil
		case p.Pending != 0:
			p.Due = 0
		case p.Due == 0:
			return nil
		default:
			started = true
		}
		w.Decide(p, false, c.Rank(), c.World(), state)
	}
}
