// Package cloudevent is the wire form of facts and commands: CloudEvents 1.0 in the NATS protocol
// binding, in binary and structured mode.
package cloudevent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/format"
	cespec "github.com/cloudevents/sdk-go/v2/binding/spec"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
)

// Documented CloudEvents extensions that Encode writes.
const (
	extTrace     = "traceparent"  // where the event originated; never rewritten
	extCause     = "causationid"  // Event.Cause
	extSequence  = "sequence"     // Event.Number, zero-padded so that it sorts as text
	extPartition = "partitionkey" // the entity
	extExpiry    = "expirytime"   // Event.Expires
)

// Encode returns the stored form of a fact or a command in CloudEvents binary mode (NATS protocol
// binding 1.0.3): attributes and extensions are ce- headers, the payload is the data. The error is
// Invalid if the envelope is incomplete or the body is not in the catalogue, TooLarge if a
// command's data is over limits.Command. Data over compressData is compressed, with the header
// Content-Encoding: gzip.
func Encode(e events.Event) (broker.Message, error) {
	m, err := message(e, binding.WithForceBinary)
	if err != nil || len(m.Data) <= compressData {
		return m, err
	}
	m.Header[headerEncoding] = []string{encodingGzip}
	m.Data, err = pack(m.Data)
	return m, err
}

// EncodeStructured returns the stored form in CloudEvents structured mode: one JSON document.
func EncodeStructured(e events.Event) (broker.Message, error) {
	return message(e, binding.WithForceStructured)
}

func message(e events.Event, mode func(context.Context) context.Context) (broker.Message, error) {
	row, ce, err := cloudEvent(e)
	if err != nil {
		return broker.Message{}, err
	}
	m := broker.Message{
		Subject: e.Subject(),
		// Percent-coded because a line break in a client's id would otherwise end the header.
		ID:     percentEncode(e.Source + "|" + e.ID),
		Header: map[string][]string{},
	}
	if !e.Expires.IsZero() { // published again after it has expired, it is another message
		m.ID += "|" + types.FormatTime(e.Expires)
	}
	w := &messageWriter{m: &m}
	if _, err := binding.Write(mode(context.Background()), (*binding.EventMessage)(&ce), w, w); err != nil {
		return broker.Message{}, errcode.Errorf(errcode.Internal, "encode %s: %w", row.Type, err)
	}
	if e.Trace != "" {
		m.Header[events.HeaderTrace] = []string{percentEncode(e.Trace)}
	}
	return m, nil
}

// cloudEvent validates the event and converts it to the SDK's form.
func cloudEvent(e events.Event) (events.Entry, event.Event, error) {
	ce := event.New(event.CloudEventsVersionV1)
	if e.Body == nil {
		return events.Entry{}, ce, errcode.Refuse([]spec.FieldError{{Path: "data", Message: "event has no body"}})
	}
	row, ok := events.EntryOf(e.Body.Type())
	if !ok {
		return row, ce, unknownType(string(e.Body.Type()), nil)
	}
	data, err := json.Marshal(e.Body)
	if err != nil {
		return row, ce, errcode.Errorf(errcode.Invalid, "encode data of %s: %w", row.Type, err)
	}
	if err := tooLarge(row, len(data)); err != nil {
		return row, ce, err
	}
	setVerbatim(&ce, "id", e.ID)
	setVerbatim(&ce, "source", e.Source)
	ce.SetType(string(row.Type))
	if e.Entity != "" {
		setVerbatim(&ce, "subject", e.Entity)
		ce.SetExtension(extPartition, e.Entity)
	}
	if !e.Time.IsZero() {
		ce.SetTime(e.Time.UTC())
	}
	if e.Cause != "" {
		ce.SetExtension(extCause, e.Cause)
	}
	if e.Trace != "" {
		ce.SetExtension(extTrace, e.Trace)
	}
	if !e.Expires.IsZero() {
		ce.SetExtension(extExpiry, e.Expires.UTC())
	}
	if e.Number > 0 {
		ce.SetExtension(extSequence, fmt.Sprintf("%020d", e.Number))
	}
	ce.SetDataContentType(mediaJSON)
	ce.DataEncoded = data // directly, because SetData would encode it again
	bad := validate(ce)
	for _, v := range []struct{ name, value string }{
		{"id", e.ID}, {"source", e.Source}, {"subject", e.Entity}, {extCause, e.Cause}, {extTrace, e.Trace},
	} {
		if wrong := badText(v.value); wrong != "" {
			bad = append(bad, spec.FieldError{Path: v.name, Message: wrong})
		}
	}
	return row, ce, errcode.Refuse(append(bad, checkEntity(row, e.Entity)...))
}

// setVerbatim sets the id, source or subject, and keeps its text: an event is known by its source
// and id. The setters of the SDK trim white space, and change how a source such as "/client/zoë" is
// written.
func setVerbatim(ce *event.Event, name, value string) {
	set := map[string]func(string){"id": ce.SetID, "source": ce.SetSource, "subject": ce.SetSubject}[name]
	if set(value); value == "" || ce.FieldErrors[name] != nil {
		return
	}
	c := ce.Context.AsV1()
	switch name {
	case "id":
		c.ID = value
	case "source":
		c.Source = types.URIRef{URL: url.URL{Opaque: value}} // an opaque part is written as it is
	case "subject":
		c.Subject = &value
	}
	ce.Context = c
}

// tooLarge refuses data over the limit of the row's class.
func tooLarge(row events.Entry, size int) error {
	if row.Class == events.ClassCommand && size > limits.Command.Max {
		return errcode.Errorf(errcode.TooLarge, "data of %s has %d bytes, at most %d are allowed", row.Type, size, limits.Command.Max)
	}
	return nil
}

// checkEntity validates the entity of a fact, a token of its subject. That of a command is a note.
func checkEntity(row events.Entry, entity string) []spec.FieldError {
	if row.Class != events.ClassFact {
		return nil
	}
	if err := spec.CheckLabel("entity", entity); err != nil {
		return []spec.FieldError{{Path: "subject", Message: err.Error()}}
	}
	return nil
}

// messageWriter implements the writing half of the binding for the SDK's binding.Write.
type messageWriter struct{ m *broker.Message }

func (w *messageWriter) SetStructuredEvent(_ context.Context, f format.Format, r io.Reader) error {
	w.m.Header[headerContentType] = []string{f.MediaType()}
	return w.SetData(r)
}

func (w *messageWriter) Start(context.Context) error { return nil }

func (w *messageWriter) SetAttribute(a cespec.Attribute, v any) error {
	return w.SetExtension(a.Name(), v)
}

func (w *messageWriter) SetExtension(name string, v any) error {
	if v == nil {
		delete(w.m.Header, headerPrefix+name)
		return nil
	}
	s, err := types.Format(v)
	if err != nil {
		return err
	}
	w.m.Header[headerPrefix+name] = []string{percentEncode(s)}
	return nil
}

func (w *messageWriter) SetData(r io.Reader) (err error) {
	w.m.Data, err = io.ReadAll(r)
	return err
}

func (w *messageWriter) End(context.Context) error { return nil }
