package samples

import (
	"fmt"

	"github.com/regroup-io/regroup/internal/workerprotocol"
)

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
