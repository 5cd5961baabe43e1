package elastic

import (
	"context"
	"errors"
	"fmt"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/samples"
	"github.com/regroup-io/regroup/internal/workerprotocol"
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
// same step. It costs an allreduce of 40 bytes and one copy of the tensors. If it returns
// ErrPlannedChange or ErrStopped it has committed.
func (s *Session) Commit(ctx context.Context) error {
	update, err := s.commit(ctx, false)
	switch {
	case err != nil:
		return err
	case update == updateStop:
		return ErrStopped
	case update == updatePlanned:
		return ErrPlannedChange
	}
	return nil
}

// commit agrees that all ranks are here with the same intent, saves the state and returns the
// update that all ranks know of.
func (s *Session) commit(ctx context.Context, final bool) (update int64, err error) {
	if err := s.mergeRecorded(ctx); err != nil {
		return 0, err
	}
	if err := s.settleShards(final); err != nil {
		return 0, err
	}
	step, last := int64(s.state.step), int64(0)
	if final {
		last = 1
	}
	mine := max(s.updates.pending(), s.agreed)
	v := [5]int64{mine, step, -step, last, -last}
	if err := collective.Allreduce(ctx, s.comm, v[:], collective.Max); err != nil {
		return 0, err
	}
	if v[1] != -v[2] || v[3] != -v[4] {
		return 0, fmt.Errorf("commit at step %d: %w", step, samples.ErrDiverged)
	}
	if err := s.mergeSampler(ctx); err != nil {
		return 0, err
	}
	if err := s.state.save(s.Generation); err != nil {
		return 0, err
	}
	if err := s.saveShards(ctx, final, v[0]); err != nil {
		return 0, err
	}
	s.parting = v[0] == updatePlanned
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
		s.writer.committed(v[0] == updatePreempted)
		s.reporter.Commit(&workerprotocol.CommitReport{Commit: s.state.Committed(), Ledger: s.state.Ledger()})
	}
	return v[0], nil
}
