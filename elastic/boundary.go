package elastic

import (
	"context"
	"errors"
	"fmt"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/collective"
)

// Interrupts: a training function returns them as they are, or wrapped, and Run calls it again in the next generation.
var (
	// ErrPlannedChange: the members are about to change. It comes from Commit, on all ranks at the same commit.
	ErrPlannedChange = errors.New("planned change: rejoin after this commit")
	// ErrStopped: the job is being stopped. It comes from Commit, on all ranks at the same commit; Run returns it.
	ErrStopped = fmt.Errorf("%w: the job is being stopped", ErrUnfinished)
	// ErrPeerLost: a member is gone, and everything since the last commit is void. It comes from any collective.
	ErrPeerLost = collective.ErrPeerLost
)

// What Run returns when this worker's part has ended in order and the training function has not: its state is that of some commit, not
// the result. A program exits 0 then, and saves nothing as a result.
var (
	// ErrUnfinished is what the others are too.
	ErrUnfinished = errors.New("the training was left before its end")
	// ErrRemoved: the job goes on without this worker, because of a drain, a smaller job, or a node that is taken away.
	ErrRemoved = fmt.Errorf("%w: the job goes on without this worker", ErrUnfinished)
	// ErrOver: the others have completed the training, or the job is over for another reason.
	ErrOver = fmt.Errorf("%w: the others have completed it or the job is over", ErrUnfinished)
)

// errDrifted: ranks are not at the same place in the program.
var errDrifted = errors.New("ranks commit at different steps: the training function must do the same on all of them")

// CommitDue tells, alike on all ranks, whether it is time to commit: every so many steps, or because the last step
// carried the news that the members are about to change or that a member's node will be taken away.
func (s *Session) CommitDue(every int) bool {
	return s.agreed != newsNone || (every > 0 && s.state.step%uint64(every) == 0)
}

// Commit makes the state one to which all ranks can return. All ranks must call it at the same step. It costs an
// allreduce of 40 bytes and one copy of the tensors. It returns ErrPlannedChange or ErrStopped after having committed.
func (s *Session) Commit(ctx context.Context) error {
	news, err := s.commit(ctx, false)
	switch {
	case err != nil:
		return err
	case news == newsStop:
		return ErrStopped
	case news == newsPlanned:
		return ErrPlannedChange
	}
	return nil
}

// commit agrees that all ranks are here, with the same intent, and saves.
func (s *Session) commit(ctx context.Context, final bool) (news int64, err error) {
	if err := s.unite(ctx); err != nil {
		return 0, err
	}
	step, last := int64(s.state.step), int64(0)
	if final {
		last = 1
	}
	mine := max(s.news.get(), s.agreed)
	v := [5]int64{mine, step, -step, last, -last}
	if err := collective.Allreduce(ctx, s.comm, v[:], collective.Max); err != nil {
		return 0, err
	}
	if v[1] != -v[2] || v[3] != -v[4] {
		return 0, fmt.Errorf("commit at step %d: %w", step, errDrifted)
	}
	if err := s.gather(ctx); err != nil {
		return 0, err
	}
	if err := s.state.save(s.Generation); err != nil {
		return 0, err
	}
	switch v[0] {
	case newsPlanned:
		s.state.replica.Store().EndGeneration()
	case newsLeaving: // all have saved, and go on
		s.agreed = newsNone
		if mine == newsLeaving {
			s.news.leaving.Store(false)
		}
	}
	if s.Rank == 0 {
		s.writer.committed(v[0] == newsLeaving)
		s.reporter.tell(nil, nil, &wire.CommitReport{Commit: s.state.Committed(), Ledger: s.state.Ledger()})
	}
	return v[0], nil
}

// gather puts together what the ranks have recorded with an ElasticSampler.
func (s *Session) gather(ctx context.Context) error {
	e := s.state.elastic
	if e == nil {
		return nil
	}
	mine, err := e.Said()
	if err != nil {
		return err
	}
	all, err := s.comm.AllgatherBlobs(ctx, mine)
	if err != nil {
		return err
	}
	sums, err := e.Agree(all)
	if err != nil {
		return fmt.Errorf("commit at step %d: %w", s.state.step, err)
	}
	for _, x := range sums {
		book(&s.state.ledger, x.Epoch, x.Count, x.Sum, x.Done)
	}
	complete(&s.state.ledger)
	return nil
}
