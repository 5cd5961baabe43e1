package elastic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/internal/checkpointwriter"
	"github.com/regroup-io/regroup/elastic/internal/updates"
	"github.com/regroup-io/regroup/elastic/internal/vote"
	"github.com/regroup-io/regroup/elastic/reshard"
	"github.com/regroup-io/regroup/elastic/shards"
	"github.com/regroup-io/regroup/elastic/statesync"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// Sharding is for a state of which each rank has parts: a model that is too large for one worker.
// Tensors, objects and handlers of the State are still the same on all ranks.
type Sharding struct {
	// Arrange registers the parts that this rank has in a generation, with Session.Shard. It is
	// called in each generation, on all ranks, when the members are known and what is not sharded
	// is in sync, with a session in the stage Arranging: it may communicate. When it has returned,
	// the parts are filled from those of the last commit, whichever ranks had them; in the first
	// generation of a job what is in them is the initial state. It must return when ctx ends.
	Arrange func(ctx context.Context, s *Session) error
	// Copies is how many other ranks keep a copy of each part, on other nodes if there are some: so
	// many may be lost at once without going back to a checkpoint. Parts that enough ranks have
	// anyway are not copied.
	Copies int
	// Parity k, in place of copies, has groups of k+1 ranks keep parity, in 1/k of the memory of a
	// copy: one rank of each may be lost. See reshard.Groups.
	Parity int
}

// Shard is a part of a global tensor: in each dimension Size elements of Shape, from Offset on. A
// rank with no part of a tensor registers one of no elements.
type Shard struct {
	Name         string
	Type         string // of the elements, in the words of the program; all ranks say the same
	Width        int    // bytes of an element
	Shape        []int
	Offset, Size []int // as long as Shape
	// Memory has the elements in row-major order. It stays where it is until Arrange is called
	// again, or Run returns.
	Memory []byte
	// Unchanged says that it was the memory of this part in the generation before, and that nothing
	// has written to it since it was committed, restored or filled: it may be left as it is.
	Unchanged bool
}

// Shard registers a part of the state, while Arrange is called.
func (s *Session) Shard(p Shard) error {
	if s.Stage != Arranging {
		return errors.New("elastic: parts of the state are registered by Sharding.Arrange")
	}
	t := reshard.Tensor{Name: p.Name, Type: p.Type, Width: p.Width, Shape: p.Shape}
	return s.state.shards.Register(t, reshard.Box{Offset: p.Offset, Size: p.Size}, p.Memory, p.Unchanged)
}

// Live marks the parts of a tensor that this rank has registered as such that change only from
// Session.Changed, AverageGradients or Consume until the next commit, while Arrange is called.
// away: while they are used they are elsewhere than in the registered memory. After CommitLive they
// may still be on their way there, until State.Brought is called.
func (s *Session) Live(name string, away bool) error {
	if s.Stage != Arranging || !s.state.shards.SetLive(name, away) {
		return fmt.Errorf("elastic: live part %q is not registered", name)
	}
	return nil
}

// Withdraw gives up the last commit of a sharded state, for all ranks, because parts that are Live
// have changed while it may have been copying them. They go on from the one before if a member is
// lost before the next. It cannot undo that a rank which is lost itself had changed such parts.
func (s *Session) Withdraw() { s.state.shards.Withdraw() }

// Brought says that the parts that are away are in the registered memory, or that they never will
// be, which fails this worker's next commit. When it returns that memory may change. Any goroutine
// may call it, and must if CommitLive has returned, also when the training function has failed.
func (s *State) Brought(ok bool) { s.shards.Brought(ok) }

// SetSharding makes the state one of which each rank has parts, while the state is being
// registered.
func (s *State) SetSharding(o Sharding) {
	if o.Arrange == nil {
		s.err = errors.Join(s.err, errors.New("Sharding.Arrange is nil"))
	}
	keep := shards.Options{Copies: o.Copies, Parity: o.Parity}
	s.err = errors.Join(s.err, keep.Check())
	s.arrange, s.shards = o.Arrange, shards.New(keep)
	s.replica.KeepTwo()
}

// shardsComm is the communicator with which parts of the state are sent.
func (s *Session) shardsComm() *collective.Communicator {
	return s.program.WithOrigin(collective.OriginShards)
}

// chooseCommit has all ranks return to the newest commit that is whole, or else to the newest
// checkpoint.
func (r *runner) chooseCommit(ctx context.Context, s *Session) (chosen statesync.Commit, found bool, err error) {
	c, replica := r.connections.All.WithOrigin(collective.OriginShards), s.state.replica
	chosen, found, notWhole := s.state.shards.Choose(ctx, c, replica.Commits())
	switch {
	case found:
		replica.ReturnTo(chosen)
		return chosen, true, nil
	case notWhole != nil && !errors.Is(notWhole, shards.ErrNotWhole):
		return chosen, false, notWhole
	}
	from, chosen, found, err := s.state.shards.Resume(ctx, c, r.disk, replica)
	switch {
	case err != nil || !found:
		return chosen, false, errors.Join(notWhole, err)
	case notWhole != nil:
		r.options.Log.Warn("the training goes back to a checkpoint", "job", r.options.Job, "gen", s.Generation, "checkpoint", from, "err", notWhole)
	}
	return chosen, true, nil
}

// arrange has the program register its parts, and fills them. It returns the number of bytes that
// this rank received.
func (r *runner) arrange(ctx context.Context, s *Session, chosen statesync.Commit, found bool) (received uint64, err error) {
	if now := s.state.replica.Commits()[0]; found && now != chosen {
		return 0, fmt.Errorf("elastic: what is not sharded is of %v, the parts of %v: this is a fault of Regroup", now, chosen)
	}
	began := time.Now()
	if !s.spare() {
		s.Stage = Arranging
		if err := s.state.arrange(ctx, s); err != nil {
			return 0, err
		}
	}
	arranged := time.Now()
	c := r.connections.All.WithOrigin(collective.OriginShards)
	node := strconv.Itoa(s.Rank - s.LocalRank) // the ranks of a node follow each other
	if received, err = s.state.shards.Sync(ctx, c, chosen, found, node, c.World()-s.World); err != nil {
		if from := s.state.replica.Resumed(); from != nil {
			err = fmt.Errorf("from checkpoint %v: %w", from, err)
		}
		return received, err
	}
	r.options.Log.Info("the parts of the state are in sync", "job", r.options.Job, "gen", s.Generation, "rank", s.Rank,
		"bytes", received, "unchanged", s.state.shards.Unchanged(), "arranged", arranged.Sub(began), "took", time.Since(arranged),
		"kept", s.state.shards.Options().String())
	if err := r.connections.LeaveSpares(ctx); err != nil || s.spare() {
		return received, err
	}
	if !found {
		s.state.shards.Save(ctx, s.shardsComm(), s.state.replica.Commits()[0], shards.Parting{}, false)
	}
	return received, nil
}

// settleShards waits for the copies of the commit before.
func (s *Session) settleShards(final bool) error {
	switch c := s.state.shards; {
	case c == nil:
		return nil
	case !final && c.Last() == (statesync.Commit{Generation: s.Generation, Step: s.state.step}):
		// Parts of two commits with one name would be taken for one.
		return fmt.Errorf("elastic: a sharded state has one commit in a step, and step %d has one", s.state.step)
	default:
		return c.Settle()
	}
}

// whoLeaves finds out who leaves after a commit, with the same result on all ranks.
func (s *Session) whoLeaves(ctx context.Context, update int64) (shards.Parting, error) {
	if update != updates.Planned {
		return shards.Parting{}, nil
	}
	const unknown, stays, leaves = 0, 1, 2
	told := make([]int64, s.World)
	switch s.updates.AwaitPlace(ctx) {
	case workerprotocol.PlaceStays:
		told[s.Rank] = stays
	case workerprotocol.PlaceLeaves:
		told[s.Rank] = leaves
	}
	if err := collective.Allreduce(ctx, s.comm, told, collective.Max); err != nil {
		return shards.Parting{}, err
	}
	p := shards.Parting{Planned: true}
	if !slices.Contains(told, unknown) {
		for _, place := range told {
			p.Leaving = append(p.Leaving, place == leaves)
		}
	}
	return p, nil
}

// saveShards makes the parts belong to the commit that was just made. Before ranks leave, all of it
// is with those who stay. agreed is what all ranks have said with the commit.
func (s *Session) saveShards(ctx context.Context, final, live bool, agreed vote.Result) error {
	if s.state.shards == nil {
		return nil
	}
	update, proposal := agreed.Update, checkpointwriter.ProposalOf(agreed.More[1:])
	if final && proposal.Due == 0 {
		return nil
	}
	c, x := s.shardsComm(), s.state.shards
	if commit := s.state.replica.Commits()[0]; commit != x.Last() {
		parting, err := s.whoLeaves(ctx, update)
		if err != nil {
			return err
		}
		x.Save(ctx, c, commit, parting, live && update == updates.None)
	}
	if final || update == updates.Stop {
		if err := x.Settle(); err != nil { // the program may use the communicator after that
			return err
		}
		return s.writer.FlushParts(ctx, s.comm, x)
	}
	s.writer.Decide(proposal, update == updates.Preempted, s.Rank, s.World, x)
	if update != updates.Planned {
		return nil
	}
	if err := x.Settle(); err != nil {
		return err
	}
	return c.Barrier(ctx)
}
