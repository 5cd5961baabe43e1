package controller

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
)

const (
	// maxDocument is the limit of a stored document in bytes. It is less than that of the bucket,
	// which includes subject and headers.
	maxDocument = 1<<20 - 1<<16
	// maxOutbox is the size of an outbox in bytes above which no further decision is made. A log
	// that is unavailable for long must not fill the document.
	maxOutbox = 1 << 18
	// envelopeSize is the approximate size of a message's headers.
	envelopeSize = 512
)

// fit returns the stored form of a decision, whose state it shrinks until that fits.
func (p *Processor[S]) fit(entity string, d *decided[S]) ([]byte, error) {
	for {
		value, err := document.Encode(d.doc)
		if err == nil && len(value) <= maxDocument {
			return value, nil
		}
		if err != nil && !errors.Is(err, errcode.ErrTooLarge) {
			return nil, err
		}
		smaller, ok := any(d.state).(Shrinker[S])
		if ok {
			d.state, ok = smaller.Shrink()
		}
		if !ok {
			return nil, errcode.Errorf(errcode.TooLarge, "%s %s: its document has more than %d bytes", p.o.Service, entity, maxDocument)
		}
		if d.doc.State, err = encode(d.state); err != nil {
			return nil, errcode.Errorf(errcode.Internal, "%s %s: encode state: %w", p.o.Service, entity, err)
		}
	}
}

func (e *entry[S]) overfull() bool {
	if e.published {
		return false
	}
	n := 0
	for _, m := range e.doc.Outbox {
		n += len(m.Data) + envelopeSize
	}
	return n > maxOutbox
}

func encode[S any](s S) ([]byte, error) {
	if p, ok := any(s).(Packer[S]); ok {
		s = p.Pack()
	}
	return json.Marshal(s)
}

// decode reads the stored form of a state into s.
func decode[S any](raw []byte, s *S) error {
	if err := json.Unmarshal(raw, s); err != nil {
		return err
	}
	if p, ok := any(*s).(Packer[S]); ok {
		var err error
		*s, err = p.Unpack()
		return err
	}
	return nil
}

// abbreviate shortens the facts of this decision, which follow the carried ones in the outbox, by
// what can be restored from the state. Only the state stored with them suffices for that, so
// carried facts stay whole.
func abbreviate[S any](s S, full []broker.Message, carried int, facts []events.Event) ([]broker.Message, []int, error) {
	r, ok := any(s).(LaunchSource)
	if !ok {
		return full, nil, nil
	}
	out, which := full, []int(nil)
	for i, f := range facts {
		short, ok := r.Abbreviate(f.Body)
		if !ok {
			continue
		}
		if which == nil {
			out = slices.Clone(full)
		}
		f.Body = short
		m, err := cloudevent.Encode(f)
		if err != nil {
			return nil, nil, err
		}
		out[carried+i], which = m, append(which, carried+i)
	}
	return out, which, nil
}

func expand[S any](s S, d document.Document) ([]broker.Message, error) {
	r, ok := any(s).(LaunchSource)
	if !ok || len(d.Elided) == 0 {
		return d.Outbox, nil
	}
	out := slices.Clone(d.Outbox)
	for _, i := range d.Elided {
		if i < 0 || i >= len(out) {
			return nil, errcode.Errorf(errcode.Invalid, "brief message %d of %d", i, len(out))
		}
		e, err := cloudevent.Decode(out[i].Header, out[i].Data)
		if err != nil {
			return nil, err
		}
		e.Body = r.Expand(e.Body)
		m, err := cloudevent.Encode(e)
		if err != nil {
			return nil, err
		}
		if trace := out[i].Header[events.HeaderTrace]; trace != nil {
			m.Header[events.HeaderTrace] = trace
		}
		out[i] = m
	}
	return out, nil
}
