package sim

import (
	"fmt"
	"slices"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/events"
)

// ledger counts the samples consumed of one epoch.
type ledger struct{ count, sum uint64 }

func (l *ledger) add(m ledger) { l.count += m.count; l.sum += m.sum }

// snapshot is one committed state: the position in the data together with the ledger.
type snapshot struct {
	generation, step uint64
	epoch, cursor    uint64
	samples          uint64
	account          ledger   // of the current epoch
	epochs           []ledger // finished
}

func (s snapshot) clone() snapshot {
	s.epochs = slices.Clone(s.epochs)
	return s
}

func (s snapshot) newer(o snapshot) bool {
	if s.generation != o.generation {
		return s.generation > o.generation
	}
	return s.step > o.step
}

func (s snapshot) hash() string {
	return events.Token(fmt.Sprint(s.generation, s.step, s.epoch, s.cursor, s.account, s.epochs))[:8]
}

// consume advances by the samples of the steps since the last commit.
func (s *snapshot) consume(l ledger, ends bool) {
	s.account.add(l)
	s.cursor += l.count
	if ends {
		s.epochs = append(s.epochs, s.account)
		s.epoch, s.cursor, s.account = s.epoch+1, 0, ledger{}
	}
}

func (s snapshot) ledger() wire.Ledger {
	l := wire.Ledger{Samples: s.samples}
	for i, e := range s.epochs {
		l.Epochs = append(l.Epochs, wire.LedgerEpoch{Epoch: uint64(i), Count: e.count, Sum: e.sum, Done: true})
	}
	if s.account.count > 0 {
		l.Epochs = append(l.Epochs, wire.LedgerEpoch{Epoch: s.epoch, Count: s.account.count, Sum: s.account.sum})
	}
	return l
}
