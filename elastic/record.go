package elastic

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/collective"
)

// recorded is what one rank says at a commit of what it has recorded since the one before.
type recorded struct {
	Step   uint64             `json:"step"`
	Epochs []wire.LedgerEpoch `json:"epochs,omitempty"`
}

// Recording has ranks say with Session.Record what they have trained on, each at its own pace, instead of Consume. It is part of the
// registration, alike on all ranks.
func (s *State) Recording() { s.recording = true }

// Record ends a step of this rank, which has trained on samples of an epoch. It talks to nobody: what all ranks have recorded is put together by
// the next commit, at the step of the rank that has made most.
func (s *Session) Record(epoch uint64, indices []int) {
	said := &s.state.unmerged
	i := slices.IndexFunc(*said, func(e wire.LedgerEpoch) bool { return e.Epoch == epoch })
	if i < 0 {
		i = len(*said)
		*said = append(*said, wire.LedgerEpoch{Epoch: epoch})
	}
	(*said)[i].Count += uint64(len(indices))
	(*said)[i].Sum += hashSum(indices)
	s.state.step++
	s.progress()
}

// unite puts together what the ranks have recorded. Nothing of it counts before the commit that follows.
func (s *Session) unite(ctx context.Context) error {
	if !s.state.recording {
		return nil
	}
	mine, err := json.Marshal(recorded{Step: s.state.step, Epochs: s.state.unmerged})
	if err != nil {
		return err
	}
	all, err := s.comm.AllgatherBlobs(ctx, mine)
	if err != nil {
		return err
	}
	for rank, b := range all {
		var r recorded
		if err := json.Unmarshal(b, &r); err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
		s.state.step = max(s.state.step, r.Step)
		for _, e := range r.Epochs {
			book(&s.state.ledger, e.Epoch, e.Count, e.Sum, false)
		}
	}
	complete(&s.state.ledger)
	s.state.unmerged = nil
	if s.state.step == s.state.replica.Newest().Step() {
		s.state.step++ // commits differ in their steps
	}
	return nil
}

// Hear finds out, alike on all ranks, what has been announced to any of them: after it CommitDue tells of it. A step that ends with
// Consume or AverageGradients does so too.
func (s *Session) Hear(ctx context.Context) error {
	v := []int64{max(s.news.get(), s.agreed)}
	if err := collective.Allreduce(ctx, s.comm, v, collective.Max); err != nil {
		return err
	}
	s.agreed = v[0]
	return nil
}
