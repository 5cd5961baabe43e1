package elastic

import (
	"fmt"
	"slices"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
)

// book adds what one step consumed, as agreed by all ranks, to the account of its epoch.
func book(l *wire.Ledger, epoch, count, sum uint64, last bool) {
	i := slices.IndexFunc(l.Epochs, func(e wire.LedgerEpoch) bool { return e.Epoch == epoch })
	if i < 0 {
		i = len(l.Epochs)
		l.Epochs = append(l.Epochs, wire.LedgerEpoch{Epoch: epoch})
	}
	e := &l.Epochs[i]
	e.Count += count
	e.Sum += sum
	e.Done = e.Done || last
}

// complete marks the epochs as done of which all samples were consumed.
func complete(l *wire.Ledger) {
	for i := range l.Epochs {
		e := &l.Epochs[i]
		e.Done = e.Done || e.Count >= l.Samples
	}
}

// consumed returns the samples of all epochs of a ledger.
func consumed(l wire.Ledger) uint64 {
	var n uint64
	for _, e := range l.Epochs {
		n += e.Count
	}
	return n
}

// CheckLedger proves or refutes that every sample of every finished epoch was consumed exactly once: the count must be
// the size of the epoch and the sum of hashes that of the indices 0..samples-1, whatever their order was. It takes one
// pass over the indices, about a nanosecond each.
func CheckLedger(l wire.Ledger) error {
	var want uint64
	for i := range l.Samples {
		want += wire.SampleHash(i)
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
