package elastic

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/regroup-io/regroup/elastic/samples"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// recorded is what one rank has recorded since the last commit, as it is sent to the others.
type recorded struct {
	Step   uint64                       `json:"step"`
	Epochs []workerprotocol.LedgerEpoch `json:"epochs,omitempty"`
}

// Recording lets each rank report what it has trained on with Session.Record, at its own pace,
// instead of with Consume. It is part of the registration, the same on all ranks.
func (s *State) Recording() { s.recording = true }

// Record ends a step of this rank, which has trained on samples of an epoch. It does not
// communicate: the next commit merges what all ranks have recorded, at the step of the rank that
// has made most.
func (s *Session) Record(epoch uint64, indices []int) {
	s.RecordFor(epoch, indices)
	s.EndStep()
}

// EndStep ends a step of this rank, which consumes no samples. It does not communicate.
func (s *Session) EndStep() {
	s.state.step++
	s.parting = false
	s.reportProgress()
}

// mergeRecorded merges what the ranks have recorded with Record. It counts with the commit that
// follows.
func (s *Session) mergeRecorded(ctx context.Context) error {
	mine, err := json.Marshal(recorded{Step: s.state.step, Epochs: s.state.unmerged.Epochs})
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
			s.state.ledger.Add(e)
		}
	}
	s.state.ledger.MarkDone()
	s.state.unmerged.Epochs = nil
	s.ensureStep()
	return nil
}

// ensureStep makes the step another one than that of the last commit: commits of a generation
// differ in their steps.
func (s *Session) ensureStep() {
	if s.state.step == s.state.replica.Last().Step {
		s.state.step++
	}
}

// RecordFor is Record for other ranks, which do not record it: what they have trained on in a step
// that they did not survive, for CommitAlone.
func (s *Session) RecordFor(epoch uint64, indices []int) {
	s.state.unmerged.Add(workerprotocol.LedgerEpoch{Epoch: epoch, Count: uint64(len(indices)), Sum: samples.HashSum(indices)})
}

// mergeSampler merges what the ranks have recorded with an ElasticSampler.
func (s *Session) mergeSampler(ctx context.Context) error {
	e := s.state.elastic
	if e == nil {
		return nil
	}
	mine, err := e.Progress()
	if err != nil {
		return err
	}
	all, err := s.comm.AllgatherBlobs(ctx, mine)
	if err != nil {
		return err
	}
	sums, err := e.Merge(all)
	if err != nil {
		return fmt.Errorf("commit at step %d: %w", s.state.step, err)
	}
	for _, x := range sums {
		s.state.ledger.Add(x)
	}
	s.state.ledger.MarkDone()
	return nil
}
