package controller

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/document"
)

// decided is the result of stepping through a batch of inputs; nothing of it is stored yet.
type decided[S any] struct {
	doc    document.Document
	state  S
	out    Result
	pokes  []events.Signal
	launch []events.Launch  // of a LaunchSource: not in the document
	full   []events.Message // the outbox as it is told: in the document some are brief
	store  bool             // there is something to store
	lossy  bool             // only signals and ticks, which come again
	forget bool
}

// decide steps through the inputs.
func (t *Processor[S]) decide(ctx context.Context, entity string, e *entry[S], inputs []events.Input, now time.Time) (decided[S], error) {
	d := decided[S]{state: e.state, lossy: true, doc: document.Document{
		Schema:  document.Schema,
		Version: e.doc.Version + 1,
		Applied: slices.Clone(e.doc.Applied),
		Number:  maps.Clone(e.doc.Number),
	}}
	if d.doc.Number == nil {
		d.doc.Number = map[events.Family]uint64{}
	}
	if !e.told {
		d.full = slices.Clone(e.doc.Outbox)
	}
	d.doc.Published = e.launched
	carried := len(d.full)
	var last *events.Input
	for i, in := range inputs {
		key := ringKey(in)
		if key != "" && slices.Contains(d.doc.Applied, key) {
			d.out.Answers = append(d.out.Answers, InputResult{Repeat: true})
			continue
		}
		d.lossy = d.lossy && lossy(in)
		if in.Expired {
			d.out.Answers = append(d.out.Answers, InputResult{Refusal: errLate})
			continue
		}
		said, err := t.step(&d, in, now, t.take)
		if err != nil {
			return d, err
		}
		if err := t.tellLater(ctx, entity, &d, in, said, now); err != nil {
			return d, err
		}
		d.out.Answers = append(d.out.Answers, InputResult{Reply: said.Reply, Refusal: said.Refusal, Facts: len(said.Facts)})
		if said.ResetApplied {
			d.doc.Applied = nil
		}
		if key != "" {
			d.doc.Applied = append(d.doc.Applied, key)
		}
		last = &inputs[i]
	}
	if last != nil && t.conclude != nil {
		said, err := t.step(&d, *last, now, t.conclude)
		if err != nil {
			return d, err
		}
		if err := t.tellLater(ctx, entity, &d, *last, said, now); err != nil {
			return d, err
		}
	}
	d.doc.Applied = d.doc.Applied[max(0, len(d.doc.Applied)-ringSize):]
	raw, err := encode(d.state)
	if err != nil {
		return d, events.Errorf(events.Internal, "%s %s: encode state: %w", t.o.Service, entity, err)
	}
	d.doc.State = raw
	if d.store = d.store || !bytes.Equal(raw, e.doc.State); d.store {
		d.doc.Outbox, d.doc.Elided, err = brief(d.state, d.full, carried, d.out.Facts)
	}
	return d, err
}

// lossy tells whether an input comes again by itself.
func lossy(in events.Input) bool {
	f := in.Body.Type().Family()
	return f == "sig" || f == "loop"
}

// encode makes the stored form of a state.
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

// brief shortens the facts decided in this turn, which follow the carried ones in the outbox: what the state holds anyway is
// made again from it. Only the state that is stored with them has it, so carried ones stay whole.
func brief[S any](s S, full []events.Message, carried int, facts []events.Event) ([]events.Message, []int, error) {
	r, ok := any(s).(LaunchSource)
	if !ok {
		return full, nil, nil
	}
	out, which := full, []int(nil)
	for i, f := range facts {
		short, ok := r.Brief(f.Body)
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

// recall makes the outbox of a stored document whole again.
func recall[S any](s S, d document.Document) ([]events.Message, error) {
	r, ok := any(s).(LaunchSource)
	if !ok || len(d.Elided) == 0 {
		return d.Outbox, nil
	}
	out := slices.Clone(d.Outbox)
	for _, i := range d.Elided {
		if i < 0 || i >= len(out) {
			return nil, events.Errorf(events.Invalid, "brief message %d of %d", i, len(out))
		}
		e, err := cloudevent.Decode(out[i].Header, out[i].Data)
		if err != nil {
			return nil, err
		}
		e.Body = r.Recall(e.Body)
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

// step calls the machine. A panic in it refuses the input instead of taking every replica down, one after the other.
func (t *Processor[S]) step(d *decided[S], in events.Input, now time.Time, do func(S, events.Input, time.Time) (S, events.Decision)) (said events.Decision, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = events.Errorf(events.Internal, "%s: %s %s: the machine panicked: %v", t.o.Service, in.Body.Type(), in.ID, r)
		}
	}()
	d.state, said = do(d.state, in, now)
	d.out.Spans = append(d.out.Spans, said.Spans...)
	d.pokes = append(d.pokes, said.Hints...)
	d.forget = said.Forget
	d.store = d.store || len(said.Facts)+len(said.Launches) > 0
	return said, nil
}

// tellLater numbers the facts and launches of a decision and puts them into the outbox.
func (t *Processor[S]) tellLater(ctx context.Context, entity string, d *decided[S], in events.Input, said events.Decision, now time.Time) error {
	for _, f := range said.Facts {
		about := cmp.Or(f.Entity, entity)
		n, err := t.number(ctx, d, f.Body.Type().Family(), entity, about)
		if err != nil {
			return err
		}
		ev := events.Event{
			ID:     fmt.Sprintf("%s-%s-%s-%d", t.o.Service, about, f.Body.Type().Family(), n),
			Source: source(t.o.Service),
			Entity: about,
			Number: n,
			Time:   now,
			Cause:  cmp.Or(f.Cause, in.ID),
			Trace:  cmp.Or(f.Trace, in.Trace),
			Body:   f.Body,
		}
		m, err := cloudevent.Encode(ev)
		if err != nil {
			return events.Errorf(events.Internal, "%s %s: fact %s: %w", t.o.Service, entity, f.Body.Type(), err)
		}
		d.full = append(d.full, m)
		d.out.Facts = append(d.out.Facts, ev)
	}
	if _, ok := any(d.state).(LaunchSource); ok {
		d.launch = append(d.launch, said.Launches...)
		return nil
	}
	for _, l := range said.Launches {
		if l.Revision == 0 { // a machine that must know what it has told counts by itself
			l.Revision = d.doc.Version
		}
		m, err := launchMessage(l, in.Trace)
		if err != nil {
			return err
		}
		// Of two launches for one node the later one is the whole truth.
		d.full = slices.DeleteFunc(d.full, func(o events.Message) bool { return o.Subject == m.Subject })
		d.full = append(d.full, m)
	}
	return nil
}

// stopLife is how long a stop is kept: an agent that begins reads all that is kept for its node. One that was away for longer and still
// runs the job says so in its heartbeats.
const stopLife = time.Hour

// launchMessage is the stored form of a launch.
func launchMessage(l events.Launch, trace string) (events.Message, error) {
	data, err := events.EncodeBody(l)
	if err != nil {
		return events.Message{}, err
	}
	m := events.Message{
		Subject: events.LaunchSubject(l.Node, l.Job),
		ID:      string(l.Job) + "-" + string(l.Node) + "-" + strconv.FormatUint(l.Revision, 10),
		Data:    data,
	}
	if l.Phase == events.PhaseStop {
		m.TTL = stopLife
	}
	if trace = cmp.Or(l.Trace, trace); trace != "" {
		m.Header = map[string][]string{events.HeaderTrace: {trace}}
	}
	return m, nil
}

// number gives the next number of a family. A document without one, perhaps because an older document was removed, goes
// on where the log ends: readers drop lower numbers. The log is asked once, as every number after it is in the document.
func (t *Processor[S]) number(ctx context.Context, d *decided[S], f events.Family, entity, about string) (uint64, error) {
	if d.doc.Number[f] == 0 {
		if about != entity {
			about = "*"
		}
		last, err := t.lastNumber(ctx, f, about)
		if err != nil {
			return 0, err
		}
		d.doc.Number[f] = last
	}
	d.doc.Number[f]++
	return d.doc.Number[f], nil
}

// ringKey is what the document remembers of an input: 64 bits of a hash, because clients choose ids of any length.
func ringKey(in events.Input) string {
	if in.ID == "" {
		return ""
	}
	return events.Token(in.Source, in.ID)[:16]
}

func source(service string) string { return "/regroup/" + service }
