package elastic

import (
	"errors"
	"fmt"
)

// save makes the live state the newest commit. Its cost is one pass over the tensors; the hash waits until it is needed.
func (s *State) save(generation uint64) error {
	m := meta{Life: s.life, Step: s.step, Cursor: s.sampler.Cursor(), Ledger: s.ledger, values: make([][]byte, len(s.values))}
	if s.elastic != nil {
		at := s.elastic.StateDict()
		m.Elastic = &at
	}
	var err error
	for i, v := range s.values {
		if m.values[i], err = v.Save(); err != nil {
			return fmt.Errorf("commit value %q: %w", v.name, err)
		}
	}
	to := s.blank()
	if to.meta, err = m.encode(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	to.forget()
	inStrides(s.size, func(lo, hi int) { s.load(to.data[lo:hi], lo) })
	to.generation, to.step = generation, s.step
	s.adopt(to)
	return nil
}

// blank returns the spare snapshot; what it holds is of no interest.
func (s *State) blank() *snapshot {
	if s.spare == nil {
		s.spare = s.shelf.take()
	}
	if s.spare == nil {
		s.spare = newSnapshot(s.size)
	}
	return s.spare
}

// adopt makes a written snapshot the held one.
func (s *State) adopt(n *snapshot) {
	if n == s.spare {
		s.spare = nil
	}
	s.held, s.named = n, false
	s.shelf.put(n, false)
}

// name computes the hash of what is held.
func (s *State) name() digest {
	s.named = true
	return s.held.digest()
}

// Restore returns to the newest commit: what happened since is void. Without a commit it does nothing.
func (s *State) Restore() error {
	if s.held == nil {
		return nil
	}
	inStrides(s.size, func(lo, hi int) { s.store(lo, s.held.data[lo:hi]) })
	return s.restoreMeta()
}

// restoreMeta restores all but the tensors.
func (s *State) restoreMeta() error {
	m, err := decodeMeta(s.held.meta)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if len(m.values) != len(s.values) {
		return fmt.Errorf("restore: the commit has %d values, this program %d", len(m.values), len(s.values))
	}
	for i, v := range s.values {
		if err := v.Restore(m.values[i]); err != nil {
			return fmt.Errorf("restore value %q: %w", v.name, err)
		}
	}
	s.life, s.step, s.ledger, s.unsaid = m.Life, m.Step, m.Ledger, nil
	if s.elastic == nil {
		s.sampler.Seek(m.Cursor)
		return nil
	}
	if m.Elastic == nil {
		return errors.New("restore: the commit is of another sampler")
	}
	if err := s.elastic.LoadStateDict(*m.Elastic); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}
