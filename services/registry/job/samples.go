package job

import "github.com/regroup-io/regroup/events"

// EpochCheck is what a ledger says about one epoch. Missing and Repeated are exact where only the count is wrong, and
// lower bounds where samples were swapped for each other.
type EpochCheck struct {
	Epoch    uint64 `json:"epoch"`
	Count    uint64 `json:"count"`
	Done     bool   `json:"done"`
	Missing  uint64 `json:"missing"`
	Repeated uint64 `json:"repeated"`
}

// Samples checks a ledger against the epochs that it should tell of: a finished one holds every index of 0..n-1 exactly
// once, so its count is n and its sum is that of SampleHash(0)+...+SampleHash(n-1) modulo 2^64, whatever the order.
//
//	count < n             n-count are missing
//	count > n             count-n are repeated
//	count = n, other sum  at least one is missing and one repeated
//
// An epoch under way is only held to its count not being over n, and to its sum once it is full. The chance that a wrong
// set of indices has the right sum is about 2^-64. A ledger of a program that keeps none (Samples 0) checks nothing.
// The cost is one pass over n.
func Samples(l events.Ledger) (epochs []EpochCheck, missing, repeated uint64) {
	if l.Samples == 0 {
		return nil, 0, 0
	}
	var sum uint64
	for i := range l.Samples {
		sum += events.SampleHash(i)
	}
	for _, e := range l.Epochs {
		c := EpochCheck{Epoch: e.Epoch, Count: e.Count, Done: e.Done}
		switch {
		case e.Count > l.Samples:
			c.Repeated = e.Count - l.Samples
		case e.Count == l.Samples && e.Sum != sum:
			c.Missing, c.Repeated = 1, 1
		case e.Count < l.Samples && e.Done:
			c.Missing = l.Samples - e.Count
		}
		epochs = append(epochs, c)
		missing += c.Missing
		repeated += c.Repeated
	}
	return epochs, missing, repeated
}
