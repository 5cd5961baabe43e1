package elastic

import (
	"context"
	"errors"
	"fmt"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/samples"
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
	return s.agreed != updateNone || (every > 0 && s.state.step%uint64(every) == 0)
}

// Update is nil if CommitDue has no reason but the number of steps; else ErrStopped, or
// ErrPlannedChange.
func (s *Session) Update() error {
	switch s.agreed {
	case updateNone:
		return nil
	case updateStop:
		return ErrStopped
	}
	return ErrPlannedChange
}

// CheckUpdates finds out, with the same result on all ranks, what the agent of any rank has
// announced, for CommitDue. A step that ends with Consume or AverageGradients does this too.
func (s *Session) CheckUpdates(ctx context.Context) error {
	v := []int64{max(s.updates.pending(), s.agreed)}
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
// From time to time, and when a copy is needed, all ranks make one.
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
	case update == updateStop:
		return ErrStopped
	case update == updatePlanned:
		return ErrPlannedChange
	}
	return nil
}

// Changed says that tensors that are Live are about to change. AverageGradients and Consume do it
// too.
func (s *Session) Changed() { s.state.replica.Changed() }

// Unchanged reports whether tensors that are Live are those of the newest commit, which was not a
// live one. It costs one pass over them.
func (s *Session) Unchanged() bool { return s.state.replica.Matches() }

// CommitAlone makes the current state a commit that the others have not agreed on, because a peer
// was lost in a CommitLive, which calls it itself unless the state is Recording. What this rank has
// recorded, also for others, then counts as what all have. If the live tensors have not changed
// since the last commit, it does nothing.
func (s *Session) CommitAlone() error {
	if s.state.elastic != nil || s.state.replica.Live() {
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

// Alike says what must be equal on all ranks when they commit; a Commit where it is not is
// ErrUnlike.
func (s *Session) Alike(hash uint64) { s.alike = hash }

// Stop makes all ranks leave at their next commit, which returns ErrStopped. It may be called by
// any goroutine.
func (s *Session) Stop() { s.updates.announce(updateStop) }

// commit agrees that all ranks are here with the same intent, saves the state and returns the
// update that all ranks know of.
func (s *Session) commit(ctx context.Context, final, live bool) (update int64, err error) {
	if s.merged = false; s.state.recording {
		if err := s.mergeRecorded(ctx); err != nil {
			return 0, err
		}
		s.merged = true
	}
	if err := s.settleShards(final); err != nil {
		return 0, err
	}
	step, last, copied := int64(s.state.step), int64(0), int64(0)
	if final {
		last = 1
	}
	if !live || s.state.shards != nil || s.state.replica.CopyDue() || s.writer.Due() {
		copied = 1
	}
	mine := max(s.updates.pending(), s.agreed)
	alike := int64(s.alike >> 1)
	v := []int64{mine, step, -step, last, -last, copied, alike, -alike}
	if s.state.shards != nil {
		v = append(v, s.writer.Propose(s.Rank, final).Values()...)
	}
	if err := collective.Allreduce(ctx, s.comm, v, collective.Max); err != nil {
		return 0, err
	}
	switch {
	case v[1] != -v[2] || v[3] != -v[4]:
		return 0, fmt.Errorf("commit at step %d: %w", step, samples.ErrDiverged)
	case v[6] != -v[7]:
		return 0, fmt.Errorf("commit at step %d: %w", step, ErrUnlike)
	}
	if err := s.mergeSampler(ctx); err != nil {
		return 0, err
	}
	if err := s.state.save(s.Generation, v[5] > 0 || v[0] != updateNone); err != nil {
		return 0, err
	}
	if err := s.saveShards(ctx, final, v); err != nil {
		return 0, err
	}
	s.parting, s.merged = v[0] == updatePlanned, false
	switch v[0] {
	case updatePlanned:
		s.state.replica.Store().EndGeneration()
	case updatePreempted: // all have saved, and continue
		s.agreed = updateNone
		if mine == updatePreempted {
			s.updates.preempted.Store(false)
		}
	}
	if s.Rank == 0 {
		if s.state.shards == nil {
			s.writer.Committed(v[0] == updatePreempted)
		}
		s.reportCommit(s.state.Committed())
	}
	return v[0], nil
}
