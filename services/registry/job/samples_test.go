package job_test

import (
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/registry/job"
)

func TestSamples(t *testing.T) {
	epoch := func(done bool, indices ...uint64) events.LedgerEpoch {
		e := events.LedgerEpoch{Done: done}
		for _, i := range indices {
			e.Count++
			e.Sum += events.SampleHash(i)
		}
		return e
	}
	for _, row := range []struct {
		name              string
		epochs            []events.LedgerEpoch
		missing, repeated uint64
	}{
		{"every sample once, in any order", []events.LedgerEpoch{epoch(true, 3, 1, 0, 2)}, 0, 0},
		{"an epoch under way lacks nothing", []events.LedgerEpoch{epoch(true, 0, 1, 2, 3), epoch(false, 2)}, 0, 0},
		{"two are missing", []events.LedgerEpoch{epoch(true, 0, 3)}, 2, 0},
		{"one comes twice", []events.LedgerEpoch{epoch(true, 0, 1, 2, 3, 3)}, 0, 1},
		{"one in place of another", []events.LedgerEpoch{epoch(true, 0, 1, 2, 2)}, 1, 1},
		{"one that is no sample", []events.LedgerEpoch{epoch(true, 0, 1, 2, 4)}, 1, 1},
		{"too many before the end", []events.LedgerEpoch{epoch(false, 0, 1, 2, 3, 0)}, 0, 1},
		{"each epoch by itself", []events.LedgerEpoch{epoch(true, 0, 1, 2), epoch(true, 0, 1, 2, 3, 3)}, 1, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			epochs, missing, repeated := job.Samples(events.Ledger{Samples: 4, Epochs: row.epochs})
			if missing != row.missing || repeated != row.repeated {
				t.Errorf("%d missing, %d repeated, want %d and %d: %+v", missing, repeated, row.missing, row.repeated, epochs)
			}
			if len(epochs) != len(row.epochs) {
				t.Errorf("%d epochs, want %d", len(epochs), len(row.epochs))
			}
		})
	}
	if epochs, m, r := job.Samples(events.Ledger{Epochs: []events.LedgerEpoch{{Count: 7}}}); epochs != nil || m+r != 0 {
		t.Errorf("a program that keeps no ledger was checked: %v %d %d", epochs, m, r)
	}
}
