package screen

import (
	"errors"
	"io"

	"github.com/regroup-io/regroup/internal/wait"
)

// folding is how a Sticky folds the lines that it prints to a terminal.
type folding struct {
	Fold
	w      io.Writer
	waits  bool  // for the deadline of the oldest line
	failed error // of a line that was printed at its deadline
}

// Fold makes one line of equal ones that ranks print to the terminal w at the same time: see the
// type Fold. Other lines do not get before those that are held back for that.
func (s *Sticky) Fold(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.folds = &folding{w: w}
}

// fold takes a line: it is printed later, and now what is due. Before an unfinished one all lines
// of its source are printed.
func (s *Sticky) fold(l Printed) error {
	f := s.folds
	err := f.failed
	f.failed = nil
	if l.Open {
		return errors.Join(err, s.printAll(f.Of(l.Of)))
	}
	err = errors.Join(err, s.printAll(f.Take(l, s.now())))
	s.awake()
	return err
}

// unfold prints all that is held back.
func (s *Sticky) unfold() error {
	f := s.folds
	if f == nil {
		return nil
	}
	err := f.failed
	f.failed = nil
	return errors.Join(err, s.printAll(f.Rest()))
}

func (s *Sticky) printAll(lines []Printed) error {
	for _, l := range lines {
		if err := s.print(s.folds.w, true, l); err != nil {
			return err
		}
	}
	return nil
}

// awake prints what is held back when its time has come, also if nothing else comes until then.
func (s *Sticky) awake() {
	f := s.folds
	at, some := f.Deadline()
	if !some || f.waits {
		return
	}
	f.waits = true
	wait.After(max(0, min(at.Sub(s.now()), foldFor)), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		f.waits = false
		if now := s.now(); now.After(at) {
			at = now
		}
		f.failed = errors.Join(f.failed, s.printAll(f.Due(at)))
		s.awake()
	})
}
