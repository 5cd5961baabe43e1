package view

import (
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/tables"
)

// Samples summarises the ledger of the samples that were trained on. Both counts are lower bounds:
// an epoch with the right number of samples but the wrong sum of hashes has at least one of each.
type Samples struct {
	Epochs   int    `json:"epochs"`    // epochs that the program has finished
	PerEpoch uint64 `json:"per_epoch"` // size of the data set
	Missing  uint64 `json:"missing"`   // in closed epochs
	Repeated uint64 `json:"repeated"`  // in closed epochs and the current one
	// Unproven means that an epoch is too large for a check of its sum of hashes; only the counts
	// were checked.
	Unproven bool `json:"unproven,omitempty"`
}

// Exact reports whether every sample of every closed epoch was consumed exactly once.
func (s Samples) Exact() bool { return s.Missing == 0 && s.Repeated == 0 && !s.Unproven }

// SamplesOf checks a ledger against the totals of a permutation of 0..Samples-1, which are the same
// for every order. It returns nil when the program keeps no ledger. The cost is one hash per sample
// of one epoch, up to limits.Proof.
func SamplesOf(l tables.Ledger) *Samples {
	if l.Samples == 0 {
		return nil
	}
	s := &Samples{PerEpoch: l.Samples, Unproven: l.Samples > uint64(limits.Proof.Max)}
	var want uint64
	for _, e := range l.Epochs {
		if !s.Unproven && (e.Done || e.Count == l.Samples) {
			want = total(l.Samples)
			break
		}
	}
	closed := map[uint64]bool{}
	for _, e := range l.Epochs {
		if e.Done && closed[e.Epoch] { // the whole epoch was consumed twice
			s.Repeated += e.Count
			continue
		}
		switch {
		case e.Count > l.Samples:
			s.Repeated += e.Count - l.Samples
		case e.Count == l.Samples && e.Sum != want && !s.Unproven:
			s.Missing++
			s.Repeated++
		case e.Done:
			s.Missing += l.Samples - e.Count
		}
		if e.Done {
			closed[e.Epoch] = true
			s.Epochs++
		}
	}
	return s
}

// total is the sum of the hashes of 0..n-1, modulo 2^64.
func total(n uint64) (sum uint64) {
	for i := range n {
		sum += tables.SampleHash(i)
	}
	return sum
}
