package elastic

import (
	"context"
	"errors"
	"fmt"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/internal/updates"
	"github.com/regroup-io/regroup/elastic/internal/vote"
	"github.com/regroup-io/regroup/elastic/samples"
	"github.com/regroup-io/regroup/elastic/statesync"
)

// A training function returns these errors as they are, or wrapped, and Run calls it again in the
// next generation.
var (
	// ErrPlannedChange: the members are about to change. Commit returns it, on all ranks at the
	// same commit. A training function that returns it without such a commit goes back to the last
	// one.
	ErrPlannedChange = errors.New("planned change: rejoin after this commit")
	// ErrStopped: the job is being stopped. Commit returns it, on all ranks at the same commit, and
	// so does Run.
	ErrStopped = fmt.Errorf("%w: the job is being stopped", ErrUnfinished)
	// ErrUnlike: what ranks have said with Session.Alike differs, on all ranks at the same commit,
	// which was not made.
	ErrUnlike = fmt.Errorf("%w: not all have what the state keeps", collective.ErrDiverged)
	// ErrPeerLost: a member is gone, and everything since the last commit is lost. Any collective
	// returns it.
	ErrPeerLost = collective.ErrPeerLost
)

// Run returns these errors if this worker's part has ended as planned but the training function has
// not completed: the state is that of some commit and not the result. The program should exit with
// 0 and not save it as a result.
var (
	// ErrUnfinished is wrapped by the others.
	ErrUnfinished = errors.New("the training was left before its end")
	// ErrRemoved: the job continues without this worker, because of a drain, a smaller job, or a
	// node that is taken away.
	ErrRemoved = fmt.Errorf("%w: the job goes on without this worker", ErrUnfinished)
	// ErrOver: the others have completed the training, or the job is over for another reason.
	ErrOver = fmt.Errorf("%w: the others have completed it or the job is over", ErrUnfinished)
)

// CommitDue reports, with the same result on all ranks, whether it is time to commit: every so many
// steps, or if the last step has told all ranks that the members are about to change or that a
// member's node will be taken away.
func (s *Session) CommitDue(every int) bool {
	return s.agreed != updates.None || (every > 0 && s.state.step%uint64(every) == 0)
}

// Update is nil if CommitDue has no reason but the number of steps; else ErrStopped, or
// ErrPlannedChange.
func (s *Session) Update() error {
	switch s.agreed {
	case updates.None:
		return nil
	case updates.Stop:
		return ErrStopped
	}
	return ErrPlannedChange
}

// CheckUpdates finds out, alike on all ranks, what the agent of any of them has announced, for
// CommitDue. Consume and AverageGradients do it too.
func (s *Session) CheckUpdates(ctx context.Context) error {
	v := []int64{max(s.updates.Pending(), s.agreed)}
	if err := collective.Allreduce(ctx, s.comm, v, collective.Max); err != nil {
		return err
	}
	s.agreed = v[0]
	return nil
}

// Commit makes the current state one to which all ranks can return. All ranks must call it at the
// same step. It costs an allreduce of 64 bytes, or 104, and one copy of the tensors. If it returns
// ErrPlannedChange or ErrStopped it has committed.
func (s *Session) Commit(ctx context.Context) error { return s.commitOr(ctx, false) }

// CommitLive is Commit, but tensors that are Live are not copied: they are the commit until they
// change. So there is none while a step changes them, and then for those who survive the loss of a
// peer it counts that they have come here: all gradients were complete, or they would not have.
// From time to time, and when a copy is needed, all ranks make one. After AgreeEarly it waits for
// nobody.
//
// Of a sharded state there is no commit without a copy, as what a rank alone has of a step is lost
// with it. Parts that are live are copied while the program goes on.
//
// If ranks can fail between the step and this call, in other operations, the state returns to the
// last commit that was copied.
func (s *Session) CommitLive(ctx context.Context) error { return s.commitOr(ctx, true) }

func (s *Session) commitOr(ctx context.Context, live bool) error {
	update, err := s.commit(ctx, false, live)
	switch {
	case live && errors.Is(err, ErrPeerLost) && !s.state.recording:
		return errors.Join(err, s.CommitAlone())
	case err != nil:
		return err
	case update == updates.Stop:
		return ErrStopped
	case update == updates.Planned:
		return ErrPlannedChange
	}
	return nil
}

// Changed says that what is Live is about to change, and waits until parts of it are copied.
// AverageGradients and Consume do it too.
func (s *Session) Changed() {
	s.state.replica.Changed()
	s.state.shards.Copied()
}

// Unchanged reports whether what is Live is as in the newest commit, a copy, by a pass over it.
func (s *Session) Unchanged() bool { return s.state.replica.Matches() && !s.state.shards.Unlike() }

// CommitAlone makes the current state a commit that the others have not agreed on, because a peer
// was lost in a CommitLive, which calls it itself unless the state is Recording. What this rank has
// recorded, also for others, then counts as what all have. Without a change it does nothing.
func (s *Session) CommitAlone() error {
	if s.state.elastic != nil || s.state.shards != nil || s.state.replica.Live() {
		return nil
	}
	if !s.merged {
		for _, e := range s.state.unmerged.Epochs {
			s.state.ledger.Add(e)
		}
		s.state.ledger.MarkDone()
	}
	s.state.unmerged.Epochs = nil
	if !s.alone {
		s.ensureStep()
	}
	s.alone, s.merged = true, true
	return s.state.save(s.Generation, false)
}

// Alike says what must be equal on all ranks when they commit; else a Commit is ErrUnlike.
func (s *Session) Alike(hash uint64) { s.alike = hash }

// Verification keeps a commit that is known to be right; that of a sharded state keeps none.
func (s *Session) Verification() *statesync.Verification { return s.state.replica.Verification() }

// Stop makes all ranks leave at their next commit, with ErrStopped. Any goroutine may call it.
func (s *Session) Stop() { s.updates.Announce(updates.Stop) }

// AgreeEarly makes the next CommitLive one that waits for nobody, if the last one has copied
// nothing on any rank: all ranks say now, before live tensors change, what they say in a commit
// otherwise. After this the step cannot fail on any rank that goes on.
//
//	reduce the gradients ──► AgreeEarly ──► optimizer's step ──► CommitLive
//	all wait for each other                 some take longer     and nobody waits for them
//
// All ranks must call it at the same point of a step, when all that the step needs of others is
// here; then the loss of a peer is no reason not to make it, and so no error. The first and some
// later commits agree by themselves, as all do without this call. It costs an allreduce of 64
// bytes.
func (s *Session) AgreeEarly(ctx context.Context) error {
	values := s.Ballot()
	if values == nil {
		return nil
	}
	switch err := collective.Allreduce(ctx, s.comm, values, collective.Max); {
	case errors.Is(err, ErrPeerLost):
		return nil
	case err != nil:
		return err
	}
	return s.Agreed(values)
}

// Ballot returns what this rank says in AgreeEarly, for a caller that finds the greatest of each
// value on all ranks by an operation of its own, which no rank completes before all have what the
// step needs of others. nil = there is nothing to agree on, on any rank.
func (s *Session) Ballot() []int64 {
	s.agreement, s.ballot = nil, nil
	if s.early {
		v := s.vote(false, true)
		s.ballot = &v
		return v.Values()
	}
	return nil
}

// Agreed says what the greatest of the values of all ranks are.
func (s *Session) Agreed(greatest []int64) (err error) {
	if s.ballot == nil || len(greatest) != vote.Size {
		return fmt.Errorf("%d values are no answer to a ballot: it has %d and comes first", len(greatest), vote.Size)
	}
	said := *s.ballot
	s.ballot = nil
	s.agreement, err = s.count(said, greatest)
	return err
}

// vote is what this rank says with a commit.
func (s *Session) vote(final, live bool) vote.Vote {
	x := s.state
	v := vote.Vote{
		Update: max(s.updates.Pending(), s.agreed), Step: x.step, Final: final, Alike: s.alike,
		Copied: !live || x.shards != nil || s.copiedAlone || x.replica.CopyDue() || s.writer.Due(),
	}
	if s.early { // some may have counted the step already
		v.Step = x.replica.Last().Step
	}
	if x.shards != nil {
		v.More = append([]int64{0}, s.writer.Propose(s.Rank, final).Values()...)
		if x.shards.Withdrawn() {
			v.More[0] = 1
		}
	}
	return v
}

// count returns what all ranks have said, if that is the same where it must be.
func (s *Session) count(said vote.Vote, greatest []int64) (*vote.Result, error) {
	r := said.Count(greatest)
	switch {
	case !r.Like:
		return nil, fmt.Errorf("commit at step %d: %w", said.Step, samples.ErrDiverged)
	case !r.Alike:
		return nil, fmt.Errorf("commit at step %d: %w", said.Step, ErrUnlike)
	}
	// What ranks have recorded for each other is part of a commit, and they wait for that anyway.
	s.early = !r.Copied && r.Update == updates.None && !s.state.recording && s.state.elastic == nil
	s.copiedAlone = false
	return &r, nil
}

// Agree makes all ranks agree on the commit that follows, as it would itself, and reports whether
// that copies the tensors that are Live: a program in which they are elsewhere, in the memory of a
// GPU, brings what it has to the registered memory then, and only then.
//
//	copies, err := s.Agree(ctx, true)
//	if err == nil && copies {
//		bring(weights) // to where they are registered
//	}
//	s.CommitLive(ctx)
//
// Of a sharded state copies is whether parts must be there at once that are Live and away: else
// they may come later, until State.Brought.
//
// It also brings them before Unchanged, before State.Restore if they have not changed since the
// last commit, and before the training function returns.
func (s *Session) Agree(ctx context.Context, live bool) (copies bool, err error) {
	r, err := s.agree(ctx, false, live)
	if err != nil {
		return false, err
	}
	s.agreement, s.asked = r, true
	if s.state.shards != nil { // its commits are all copies, and overlap if nobody comes or leaves
		return !live || r.Update != updates.None, nil
	}
	return r.Copies(live), nil
}

// agree finds out what all ranks say to a commit, now or before.
func (s *Session) agree(ctx context.Context, final, live bool) (*vote.Result, error) {
	if !s.asked || final {
		if s.merged = false; s.state.recording {
			if err := s.mergeRecorded(ctx); err != nil {
				return nil, err
			}
			s.merged = true
		}
		if err := s.settleShards(final); err != nil {
			return nil, err
		}
	}
	if s.agreement != nil && !final {
		return s.agreement, nil
	}
	said := s.vote(final, live)
	values := said.Values()
	if err := collective.Allreduce(ctx, s.comm, values, collective.Max); err != nil {
		return nil, err
	}
	return s.count(said, values)
}

// commit agrees that all ranks are here with the same intent, if they have not before, saves the
// state and returns the update that all ranks know of.
func (s *Session) commit(ctx context.Context, final, live bool) (update int64, err error) {
	r, err := s.agree(ctx, final, live)
	if s.agreement, s.asked = nil, false; err != nil {
		return 0, err
	}
	if err := s.mergeSampler(ctx); err != nil {
		return 0, err
	}
	if len(r.More) > 0 && r.More[0] > 0 { // a rank has withdrawn the last commit
		s.state.shards.Withdraw()
		whole, _ := s.state.shards.Whole()
		s.state.replica.ReturnTo(whole)
	}
	if err := s.state.save(s.Generation, r.Copies(live)); err != nil {
		return 0, err
	}
	s.copiedAlone = !live && !r.Copied
	if err := s.saveShards(ctx, final, live, *r); err != nil {
		return 0, err
	}
	s.parting, s.merged = r.Update == updates.Planned, false
	switch r.Update {
	case updates.Planned:
		s.state.replica.Store().EndGeneration()
	case updates.Preempted: // all have saved, and continue
		s.agreed = updates.None
		if r.Said.Update == updates.Preempted {
			s.updates.Saved()
		}
	}
	if s.Rank == 0 {
		if s.state.shards == nil {
			s.writer.Committed(r.Update == updates.Preempted)
		}
		s.reportCommit(s.state.Committed())
	}
	return r.Update, nil
}
