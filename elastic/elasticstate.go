package elastic

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
)

// ElasticState is what an ElasticSampler commits: it says nothing about the world, so any number of ranks can go on from it.
type ElasticState struct {
	Epoch     uint64 `json:"epoch"`
	Processed spans  `json:"processed"` // places in the order of the epoch, as [[from, to], ...]
}

// Count is the number of samples of the epoch that all ranks know to be consumed.
func (s ElasticState) Count() uint64 { return s.Processed.count() }

// StateDict returns what all ranks knew at the last commit.
func (s *ElasticSampler) StateDict() ElasticState {
	return ElasticState{Epoch: s.epoch, Processed: slices.Clone(s.done)}
}

// LoadStateDict goes back to what StateDict has returned, here or elsewhere. What was recorded and not committed is void.
func (s *ElasticSampler) LoadStateDict(from ElasticState) error {
	if n := len(from.Processed); n > 0 && from.Processed[n-1].hi > s.samples {
		return fmt.Errorf("load: sample %d is consumed of %d", from.Processed[n-1].hi-1, s.samples)
	}
	s.epoch, s.done, s.unsaid = from.Epoch, slices.Clone(from.Processed), nil
	s.begin()
	return nil
}

// said is one rank's word at a commit.
type said struct {
	Epoch    uint64     `json:"epoch"`
	Consumed []progress `json:"consumed"`
}

// Said returns what this rank has recorded since the last commit, for Agree. Session.Commit does both; they are for who has
// collectives of another kind.
func (s *ElasticSampler) Said() ([]byte, error) {
	return json.Marshal(said{Epoch: s.epoch, Consumed: s.unsaid})
}

// Agree takes what all ranks have said, in their order, and returns what that adds to the ledger. It must be followed by a
// commit on all ranks, or by LoadStateDict on all.
func (s *ElasticSampler) Agree(all [][]byte) ([]wire.LedgerEpoch, error) {
	var sums []wire.LedgerEpoch
	for rank, b := range all {
		var word said
		if err := json.Unmarshal(b, &word); err != nil {
			return nil, fmt.Errorf("rank %d: %w", rank, err)
		}
		if word.Epoch != s.epoch {
			return nil, fmt.Errorf("rank %d is in epoch %d, this one in %d: %w", rank, word.Epoch, s.epoch, errDrifted)
		}
		for _, p := range word.Consumed {
			i := slices.IndexFunc(sums, func(e wire.LedgerEpoch) bool { return e.Epoch == p.Epoch })
			if i < 0 {
				i = len(sums)
				sums = append(sums, wire.LedgerEpoch{Epoch: p.Epoch})
			}
			sums[i].Count += p.Count
			sums[i].Sum += p.Sum
			sums[i].Done = sums[i].Done || p.Closed
			if p.Epoch != s.epoch {
				continue
			}
			for _, x := range p.Spans {
				if s.done.meets(x.lo, x.hi) > 0 {
					return nil, fmt.Errorf("rank %d has consumed samples that were consumed before", rank)
				}
				s.done.add(x.lo, x.hi)
			}
		}
	}
	s.unsaid = nil
	return sums, nil
}
