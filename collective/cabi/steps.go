//go:build cgo

package main

import (
	"encoding/json"

	"github.com/regroup-io/regroup/elastic"
)

// consume ends a step of total samples, of which this worker took those of indices.
func (t *training) consume(total int64, indices []int64) error {
	return t.in(func(s *elastic.Session) error {
		b := s.Next(int(total))
		if int64(b.Total) != total {
			return invalidf("a step of %d samples where %d are left of the epoch", total, b.Total)
		}
		b.Indices = b.Indices[:0]
		for _, i := range indices {
			b.Indices = append(b.Indices, int(i))
		}
		return s.Consume(background, b)
	})
}

func ints(indices []int64) []int {
	all := make([]int, len(indices))
	for i, index := range indices {
		all[i] = int(index)
	}
	return all
}

// record ends a step of this rank, which trained on samples of an epoch.
func (t *training) record(epoch uint64, indices []int64) error {
	return t.in(func(s *elastic.Session) error {
		switch {
		case t.recording:
			s.Record(epoch, ints(indices))
		case len(indices) == 0:
			s.EndStep()
		default:
			return invalidf("the state was not registered as one over a data set that is recorded")
		}
		return nil
	})
}

// recordFor records for other ranks what they have trained on in a step that they did not survive.
func (t *training) recordFor(epoch uint64, indices []int64) error {
	return t.in(func(s *elastic.Session) error {
		s.RecordFor(epoch, ints(indices))
		return nil
	})
}

// checkUpdates reports whether a commit is due because of a change of the members or a stop.
func (t *training) checkUpdates() error {
	return t.in(func(s *elastic.Session) error {
		t.tellStop(s)
		if err := s.CheckUpdates(background); err != nil {
			return err
		}
		return s.Update()
	})
}

func (t *training) commit() error {
	return t.in(func(s *elastic.Session) error {
		t.tellStop(s)
		return s.Commit(background)
	})
}

func (t *training) commitLive() error {
	return t.in(func(s *elastic.Session) error {
		t.tellStop(s)
		return s.CommitLive(background)
	})
}

func (t *training) agree(live bool) (copies bool, err error) {
	err = t.in(func(s *elastic.Session) error {
		t.tellStop(s)
		copies, err = s.Agree(background, live)
		return err
	})
	return copies, err
}

func (t *training) ballot(values []int64) error {
	return t.in(func(s *elastic.Session) error {
		t.tellStop(s)
		all := s.Ballot()
		if all == nil {
			return errNoBallot
		}
		copy(values, all)
		return nil
	})
}

func (t *training) agreed(greatest []int64) error {
	return t.in(func(s *elastic.Session) error { return s.Agreed(greatest) })
}

// tellStop has all ranks leave at the next commit, if this process was asked to end.
func (t *training) tellStop(s *elastic.Session) {
	if t.stopping.Load() {
		s.Stop()
	}
}

func (t *training) alike(hash uint64) error {
	return t.in(func(s *elastic.Session) error {
		s.Alike(hash)
		return nil
	})
}

func (t *training) changed() error {
	return t.in(func(s *elastic.Session) error {
		s.Changed()
		return nil
	})
}

func (t *training) withdraw() error {
	return t.in(func(s *elastic.Session) error {
		s.Withdraw()
		return nil
	})
}

func (t *training) copyNext() error {
	return t.in(func(s *elastic.Session) error {
		s.Verification().CopyNext()
		return nil
	})
}

func (t *training) hold() (held bool, err error) {
	err = t.in(func(s *elastic.Session) error {
		held = s.Verification().Hold()
		return nil
	})
	return held, err
}

func (t *training) verify() error {
	return t.in(func(s *elastic.Session) error {
		s.Verification().Verify()
		return nil
	})
}

func (t *training) distrust() (step uint64, back bool, err error) {
	err = t.in(func(s *elastic.Session) error {
		c, ok := s.Verification().Distrust()
		step, back = c.Step, ok
		return nil
	})
	return step, back, err
}

func (t *training) unchanged() (same bool, err error) {
	err = t.in(func(s *elastic.Session) error {
		same = s.Unchanged()
		return nil
	})
	return same, err
}

func (t *training) commitAlone() error { return t.in((*elastic.Session).CommitAlone) }

func (t *training) restore() error {
	return t.in(func(*elastic.Session) error { return t.state.Restore() })
}

func (t *training) report(metrics string) error {
	var m map[string]float64
	if err := json.Unmarshal([]byte(metrics), &m); err != nil {
		return invalidf("metrics: %v", err)
	}
	return t.in(func(s *elastic.Session) error {
		s.Report(m)
		return nil
	})
}
