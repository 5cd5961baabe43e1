package controller

import (
	"errors"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
)

// Shrinker is a state that can do without some of what it holds. A document that would outgrow its store is shrunk until it fits:
// a turn that cannot be stored would lose what its inputs say, for ever.
type Shrinker[S any] interface {
	// Shrink leaves out what is needed least of what is left and returns true, or false when there is nothing more. It keeps what
	// a LaunchSource makes its launches and facts from.
	Shrink() (S, bool)
}

const (
	// mostStored is how long a stored document may become: what its subject and headers take is kept free.
	mostStored = 1<<20 - 1<<16
	// mostWaiting is how much may wait to be told before no more is decided. A log that takes nothing for long must not fill the document.
	mostWaiting = 1 << 18
	// envelopeSize is about what the headers of one of them take.
	envelopeSize = 512
)

// fit makes the stored form of a decision, and shrinks its state until that can be stored.
func (t *Processor[S]) fit(entity string, d *decided[S]) ([]byte, error) {
	for {
		value, err := document.Encode(d.doc)
		if err == nil && len(value) <= mostStored {
			return value, nil
		}
		if err != nil && !errors.Is(err, events.ErrTooLarge) {
			return nil, err
		}
		smaller, ok := any(d.state).(Shrinker[S])
		if ok {
			d.state, ok = smaller.Shrink()
		}
		if !ok {
			return nil, events.Errorf(events.TooLarge, "%s %s: its document has more than %d bytes", t.o.Service, entity, mostStored)
		}
		if d.doc.State, err = encode(d.state); err != nil {
			return nil, events.Errorf(events.Internal, "%s %s: encode state: %w", t.o.Service, entity, err)
		}
	}
}

// crowded tells whether too much of an entity waits to be told.
func (e *entry[S]) crowded() bool {
	if e.told {
		return false
	}
	n := 0
	for _, m := range e.doc.Outbox {
		n += len(m.Data) + envelopeSize
	}
	return n > mostWaiting
}
