package elastic

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// addConsumed adds what was consumed to the account of its epoch, which it opens if there is none.
func addConsumed(all *[]workerprotocol.LedgerEpoch, x workerprotocol.LedgerEpoch) {
	i := slices.IndexFunc(*all, func(e workerprotocol.LedgerEpoch) bool { return e.Epoch == x.Epoch })
	if i < 0 {
		*all = append(*all, x)
		return
	}
	e := &(*all)[i]
	e.Count += x.Count
	e.Sum += x.Sum
	e.Done = e.Done || x.Done
}

func markDone(l *workerprotocol.Ledger) {
	for i := range l.Epochs {
		e := &l.Epochs[i]
		e.Done = e.Done || e.Count >= l.Samples
	}
}

func consumed(l workerprotocol.Ledger) uint64 {
	var n uint64
	for _, e := range l.Epochs {
		n += e.Count
	}
	return n
}

// hashSum returns the sum of the hashes of indices, which is what they add to the ledger.
func hashSum(indices []int) uint64 {
	var sum uint64
	for _, i := range indices {
		sum += workerprotocol.SampleHash(uint64(i))
	}
	return sum
}

// CheckLedger proves or refutes that every sample of every finished epoch was consumed exactly
// once: the count must be the size of the epoch, and the sum of hashes that of the indices
// 0..samples-1 in any order. It takes one pass over the indices, about a nanosecond each.
func CheckLedger(l workerprotocol.Ledger) error {
	var want uint64
	for i := range l.Samples {
		want += workerprotocol.SampleHash(i)
	}
	for _, e := range l.Epochs {
		switch {
		case !e.Done:
		case e.Count < l.Samples:
			return fmt.Errorf("epoch %d: %d of %d samples are missing", e.Epoch, l.Samples-e.Count, l.Samples)
		case e.Count > l.Samples:
			return fmt.Errorf("epoch %d: %d samples were consumed twice", e.Epoch, e.Count-l.Samples)
		case e.Sum != want:
			return fmt.Errorf("epoch %d: some samples were consumed twice and as many never", e.Epoch)
		}
	}
	return nil
}

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
	addConsumed(&s.state.unmerged, workerprotocol.LedgerEpoch{Epoch: epoch, Count: uint64(len(indices)), Sum: hashSum(indices)})
	s.state.step++
	s.parting = false
	s.reportProgress()
}

// mergeRecorded merges what the ranks have recorded with Record. It counts with the commit that
// follows.
func (s *Session) mergeRecorded(ctx context.Context) error {
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
			addConsumed(&s.state.ledger.Epochs, e)
		}
	}
	markDone(&s.state.ledger)
	s.state.unmerged = nil
	if s.state.step == s.state.replica.Newest().Step() {
		s.state.step++ // commits of a generation differ in their steps
	}
	return nil
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
		addConsumed(&s.state.ledger.Epochs, x)
	}
	markDone(&s.state.ledger)
	return nil
}
