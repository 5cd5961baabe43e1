package loop

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
)

// decided is the result of stepping through a batch of inputs; nothing of it is stored yet.
type decided[S any] struct {
	doc    events.Document
	state  S
	out    Outcome
	pokes  []events.Signal
	store  bool // there is something to store
	lossy  bool // only signals and ticks, which come again
	forget bool
}

// decide steps through the inputs.
func (t *Turner[S]) decide(ctx context.Context, entity string, e *entry[S], inputs []events.Input, now time.Time) (decided[S], error) {
	d := decided[S]{state: e.state, lossy: true, doc: events.Document{
		Schema:  events.DocumentSchema,
		Version: e.doc.Version + 1,
		Applied: slices.Clone(e.doc.Applied),
		Number:  maps.Clone(e.doc.Number),
	}}
	if d.doc.Number == nil {
		d.doc.Number = map[events.Family]uint64{}
	}
	if !e.told {
		d.doc.Outbox = slices.Clone(e.doc.Outbox)
	}
	for _, in := range inputs {
		key := ringKey(in)
		if key != "" && slices.Contains(d.doc.Applied, key) {
			d.out.Answers = append(d.out.Answers, Answer{Repeat: true})
			continue
		}
		if f := in.Body.Type().Family(); f != "sig" && f != "loop" {
			d.lossy = false
		}
		said, err := t.step(&d, in, now)
		if err != nil {
			return d, err
		}
		if err := t.tellLater(ctx, entity, &d, in, said, now); err != nil {
			return d, err
		}
		d.out.Answers = append(d.out.Answers, Answer{Reply: said.Reply, Refusal: said.Refusal, Facts: len(said.Facts)})
		d.out.Spans = append(d.out.Spans, said.Spans...)
		d.pokes = append(d.pokes, said.Pokes...)
		d.forget = said.Forget
		if key != "" {
			d.doc.Applied = append(d.doc.Applied, key)
		}
		d.store = d.store || len(said.Facts)+len(said.Launches) > 0
	}
	d.doc.Applied = d.doc.Applied[max(0, len(d.doc.Applied)-ringSize):]
	raw, err := json.Marshal(d.state)
	if err != nil {
		return d, events.Errorf(events.Internal, "%s %s: encode state: %w", t.o.Service, entity, err)
	}
	d.doc.State = raw
	d.store = d.store || !bytes.Equal(raw, e.doc.State)
	return d, nil
}

// step calls the machine. A panic in it refuses the input instead of taking every replica down, one after the other.
func (t *Turner[S]) step(d *decided[S], in events.Input, now time.Time) (said events.Decision, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = events.Errorf(events.Internal, "%s: %s %s: the machine panicked: %v", t.o.Service, in.Body.Type(), in.ID, r)
		}
	}()
	d.state, said = t.o.Machine.Step(d.state, in, now)
	return said, nil
}

// tellLater numbers the facts and launches of a decision and puts them into the outbox.
func (t *Turner[S]) tellLater(ctx context.Context, entity string, d *decided[S], in events.Input, said events.Decision, now time.Time) error {
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
		m, err := ev.Message()
		if err != nil {
			return events.Errorf(events.Internal, "%s %s: fact %s: %w", t.o.Service, entity, f.Body.Type(), err)
		}
		d.doc.Outbox = append(d.doc.Outbox, m)
		d.out.Facts = append(d.out.Facts, ev)
	}
	for _, l := range said.Launches {
		if l.Revision == 0 { // a machine that must know what it has told counts by itself
			l.Revision = d.doc.Version
		}
		data, err := events.EncodeBody(l)
		if err != nil {
			return err
		}
		m := events.Message{
			Subject: events.LaunchSubject(l.Node, l.Job),
			ID:      string(l.Job) + "-" + string(l.Node) + "-" + strconv.FormatUint(l.Revision, 10),
			Data:    data,
		}
		if trace := cmp.Or(l.Trace, in.Trace); trace != "" {
			m.Header = map[string][]string{events.HeaderTrace: {trace}}
		}
		// Of two launches for one node the later one is the whole truth.
		d.doc.Outbox = slices.DeleteFunc(d.doc.Outbox, func(o events.Message) bool { return o.Subject == m.Subject })
		d.doc.Outbox = append(d.doc.Outbox, m)
	}
	return nil
}

// number gives the next number of a family. A document without one, perhaps because an older document was removed, goes
// on where the log ends: readers drop lower numbers. The log is asked once, as every number after it is in the document.
func (t *Turner[S]) number(ctx context.Context, d *decided[S], f events.Family, entity, about string) (uint64, error) {
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
