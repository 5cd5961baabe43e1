package controller

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
)

// decided is what a batch of inputs leads to; nothing of it is stored yet.
type decided[S any] struct {
	doc       document.Document
	state     S
	out       Result
	hints     []events.Signal
	launches  []events.Launch  // of a LaunchSource: not in the document
	outbox    []broker.Message // as it is published: some are abbreviated in the document
	store     bool             // the document must be stored
	transient bool             // only signals and ticks, which are repeated anyway
	forget    bool
}

func (p *Processor[S]) decide(ctx context.Context, entity string, e *entry[S], inputs []events.Input, now time.Time) (decided[S], error) {
	d := decided[S]{state: e.state, transient: true, doc: document.Document{
		Schema:  document.Schema,
		Version: e.doc.Version + 1,
		Applied: slices.Clone(e.doc.Applied),
		Number:  maps.Clone(e.doc.Number),
	}}
	if d.doc.Number == nil {
		d.doc.Number = map[events.Family]uint64{}
	}
	if !e.published {
		d.outbox = slices.Clone(e.doc.Outbox)
	}
	d.doc.Published = e.launched
	carried := len(d.outbox)
	var last *events.Input
	for i, in := range inputs {
		key := ringKey(in)
		if key != "" && slices.Contains(d.doc.Applied, key) {
			d.out.Inputs = append(d.out.Inputs, InputResult{Repeat: true})
			continue
		}
		d.transient = d.transient && transient(in)
		if in.Expired {
			d.out.Inputs = append(d.out.Inputs, InputResult{Refusal: errLate})
			continue
		}
		result, err := p.step(&d, in, now, p.apply)
		if err != nil {
			return d, err
		}
		if err := p.enqueue(ctx, entity, &d, in, result, now); err != nil {
			return d, err
		}
		d.out.Inputs = append(d.out.Inputs, InputResult{Reply: result.Reply, Refusal: result.Refusal, Facts: len(result.Facts)})
		if result.ResetApplied {
			d.doc.Applied = nil
		}
		// A refusal without facts has changed nothing, and is published after the document is
		// stored: until that is done the input must be refused again.
		if key != "" && (result.Refusal == nil || len(result.Facts) > 0) {
			d.doc.Applied = append(d.doc.Applied, key)
		}
		last = &inputs[i]
	}
	if last != nil && p.conclude != nil {
		result, err := p.step(&d, *last, now, p.conclude)
		if err != nil {
			return d, err
		}
		if err := p.enqueue(ctx, entity, &d, *last, result, now); err != nil {
			return d, err
		}
	}
	d.doc.Applied = d.doc.Applied[max(0, len(d.doc.Applied)-ringSize):]
	raw, err := encode(d.state)
	if err != nil {
		return d, errcode.Errorf(errcode.Internal, "%s %s: encode state: %w", p.o.Service, entity, err)
	}
	d.doc.State = raw
	d.store = d.store || !bytes.Equal(raw, e.doc.State)
	if d.forget && e.revision == 0 && len(d.outbox) == 0 {
		d.store = false // there is no document, and nothing that needs one
	}
	if d.store {
		d.doc.Outbox, d.doc.Elided, err = abbreviate(d.state, d.outbox, carried, d.out.Facts)
	}
	return d, err
}

// transient reports whether an input is repeated by its sender.
func transient(in events.Input) bool {
	f := in.Body.Type().Family()
	return f == "sig" || f == "loop"
}

// step calls the machine. A panic in it fails the input instead of crashing every replica.
func (p *Processor[S]) step(d *decided[S], in events.Input, now time.Time, do func(S, events.Input, time.Time) (S, events.Decision)) (result events.Decision, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errcode.Errorf(errcode.Internal, "%s: %s %s: the machine panicked: %v", p.o.Service, in.Body.Type(), in.ID, r)
		}
	}()
	d.state, result = do(d.state, in, now)
	d.out.Spans = append(d.out.Spans, result.Spans...)
	d.hints = append(d.hints, result.Hints...)
	d.forget = result.Forget
	d.store = d.store || len(result.Facts)+len(result.Launches) > 0
	return result, nil
}

// enqueue numbers the facts and launches of a decision and appends them to the outbox.
func (p *Processor[S]) enqueue(ctx context.Context, entity string, d *decided[S], in events.Input, result events.Decision, now time.Time) error {
	for _, f := range result.Facts {
		about := cmp.Or(f.Entity, entity)
		n, err := p.number(ctx, d, f.Body.Type().Family(), entity, about)
		if err != nil {
			return err
		}
		ev := events.Event{
			ID:     fmt.Sprintf("%s-%s-%s-%d", p.o.Service, about, f.Body.Type().Family(), n),
			Source: events.ServiceSource(p.o.Service),
			Entity: about,
			Number: n,
			Time:   now,
			Cause:  cmp.Or(f.Cause, in.ID),
			Trace:  cmp.Or(f.Trace, in.Trace),
			Body:   f.Body,
		}
		m, err := cloudevent.Encode(ev)
		if err != nil {
			return errcode.Errorf(errcode.Internal, "%s %s: fact %s: %w", p.o.Service, entity, f.Body.Type(), err)
		}
		d.outbox = append(d.outbox, m)
		d.out.Facts = append(d.out.Facts, ev)
	}
	if _, ok := any(d.state).(LaunchSource); ok {
		d.launches = append(d.launches, result.Launches...)
		return nil
	}
	for _, l := range result.Launches {
		if l.Revision == 0 { // a machine that must know what it has launched numbers its launches itself
			l.Revision = d.doc.Version
		}
		m, err := launchMessage(l, in.Trace)
		if err != nil {
			return err
		}
		// A later launch for the same node replaces an earlier one.
		d.outbox = slices.DeleteFunc(d.outbox, func(o broker.Message) bool { return o.Subject == m.Subject })
		d.outbox = append(d.outbox, m)
	}
	return nil
}

// stopKept is how long a stop is kept in the log: an agent that starts reads all launches kept for
// its node. An agent that was disconnected for longer and still runs the job shows it in its
// heartbeats.
const stopKept = time.Hour

func launchMessage(l events.Launch, trace string) (broker.Message, error) {
	data, err := bodies.Encode(l)
	if err != nil {
		return broker.Message{}, err
	}
	m := broker.Message{
		Subject: events.LaunchSubject(l.Node, l.Job),
		ID:      string(l.Job) + "-" + string(l.Node) + "-" + strconv.FormatUint(l.Revision, 10),
		Data:    data,
	}
	if l.Phase == events.PhaseStop {
		m.TTL = stopKept
	}
	if trace = cmp.Or(l.Trace, trace); trace != "" {
		m.Header = map[string][]string{events.HeaderTrace: {trace}}
	}
	return m, nil
}

// number returns the next number of a family. A document without one, perhaps because an older
// document was removed, continues where the log ends: readers drop lower numbers. The log is read
// only once, because later numbers are in the document.
func (p *Processor[S]) number(ctx context.Context, d *decided[S], f events.Family, entity, about string) (uint64, error) {
	if d.doc.Number[f] == 0 {
		if about != entity {
			about = "*"
		}
		last, err := p.lastNumber(ctx, f, about)
		if err != nil {
			return 0, err
		}
		d.doc.Number[f] = last
	}
	d.doc.Number[f]++
	return d.doc.Number[f], nil
}

// ringKey is the form in which the document remembers an input: 64 bits of a hash, because clients
// choose ids of any length.
func ringKey(in events.Input) string {
	if in.ID == "" {
		return ""
	}
	return ident.Token(in.Source, in.ID)[:16]
}
