package cloudevent

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tracing"
)

// Decode decodes a fact or a command in CloudEvents binary or structured mode; a JSON object
// without CloudEvents headers is taken as structured, so that a plain client needs none. Header
// names match in any case. All errors are returned together (FieldErrorsOf) with code Invalid; an
// unknown type also matches ErrUnknownType; a command over limits.Command is TooLarge. Despite an
// error the event has what could be decoded of the envelope, so that a rejection can name it.
func Decode(h map[string][]string, data []byte) (events.Event, error) {
	var (
		attrs map[string]string
		bad   []spec.FieldError
	)
	if len(data) > limits.Message.Max {
		return events.Event{}, errcode.Errorf(errcode.TooLarge, "message has %d bytes (%s)", len(data), limits.Message)
	}
	media := strings.ToLower(broker.HeaderValue(h, headerContentType))
	attrs, bad = attributes(h)
	binary := !strings.HasPrefix(media, mediaEvents) && len(attrs)+len(bad) > 0
	data, err := unpacked(h, data, mostUnpacked(binary, attrs["type"]))
	if err != nil && binary {
		return envelope(attrs), err
	} else if err != nil {
		return events.Event{}, err
	}
	switch {
	case strings.HasPrefix(media, mediaEvents):
		if m, _, _ := strings.Cut(media, ";"); strings.TrimSpace(m) != mediaStructured && strings.TrimSpace(m) != mediaEvents {
			return events.Event{}, errcode.Refuse([]spec.FieldError{{Path: headerContentType, Message: strconv.Quote(media) + " is not accepted: send " + mediaStructured}})
		}
		attrs, data, bad = structured(data)
	case binary:
	default:
		attrs, data, bad = structured(data)
	}
	return fromAttributes(attrs, data, bad)
}

// DecodeStored decodes a fact or a command from a stream as Decode does. One of another type,
// entity, writer or submitter than its subject says is refused: who may publish what is a matter of
// the subject.
func DecodeStored(s broker.Stored) (events.Event, error) {
	e, err := Decode(s.Header, s.Data)
	if err != nil {
		return e, err
	}
	var bad []spec.FieldError
	if want := e.Subject(); want != s.Subject {
		bad = append(bad, spec.FieldError{Path: "subject", Message: "was published on " + s.Subject + ": what this event says belongs on " + want})
	}
	row, _ := events.EntryOf(e.Body.Type())
	if row.Class == events.ClassCommand && events.OfCluster(e.Source) {
		bad = append(bad, spec.FieldError{Path: "source", Message: fmt.Sprintf("is %q, a part of the cluster: commands are those of clients", e.Source)})
	}
	if row.Class == events.ClassFact {
		if !row.WrittenBy(e.Source) {
			bad = append(bad, spec.FieldError{Path: "source", Message: fmt.Sprintf("is %q: these facts are those of %s", e.Source, row.Writer)})
		}
		if about := events.About(e.Body); about != "" && about != e.Entity {
			bad = append(bad, spec.FieldError{Path: "data", Message: fmt.Sprintf("is about %s, and the subject about %s", about, e.Entity)})
		}
	}
	if len(bad) > 0 {
		e.Body = nil
	}
	return e, errcode.Refuse(bad)
}

// mostUnpacked returns the maximum length of decompressed data. The type of a structured event is
// not known in advance, but only clients send those.
func mostUnpacked(binary bool, typ string) int {
	if row, ok := events.EntryOf(events.Type(typ)); binary && ok && row.Class == events.ClassFact {
		return limits.Unpacked.Max
	}
	return limits.Command.Max
}

// repeated returns the members of an event that are given more than once. Those of data are checked
// with it.
func repeated(b []byte) (bad []spec.FieldError) {
	for _, f := range spec.CheckKeys(b, "") {
		if !strings.HasPrefix(f.Path, "data.") && !strings.HasPrefix(f.Path, "data[") {
			bad = append(bad, f)
		}
	}
	return bad
}

// structured decodes the JSON event format: members are attributes, except data and data_base64.
func structured(b []byte) (attrs map[string]string, data []byte, bad []spec.FieldError) {
	var members map[string]json.RawMessage
	f := spec.CheckLimit("", limits.Nesting(b), limits.Depth)
	if f == nil {
		f = spec.CheckSyntax(b)
	}
	if f != nil {
		f.Message = "not a CloudEvent in JSON: " + f.Message
		return nil, nil, []spec.FieldError{*f}
	}
	if bad = repeated(b); len(bad) > 0 {
		return nil, nil, bad
	}
	if err := json.Unmarshal(b, &members); err != nil {
		return nil, nil, []spec.FieldError{{Message: "not a CloudEvent: neither ce- headers nor a JSON object"}}
	}
	attrs = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		raw := members[name]
		var text string
		switch {
		case string(raw) == "null": // as if absent
		case name == "data":
			data = raw
		case raw[0] == '{' || raw[0] == '[':
			bad = append(bad, spec.FieldError{Path: name, Message: "is an attribute and must be text, a number or a truth value"})
		case raw[0] != '"':
			attrs[name] = string(raw)
		case json.Unmarshal(raw, &text) != nil:
			bad = append(bad, spec.FieldError{Path: name, Message: "is not text"})
		case name == "data_base64":
			plain, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				bad = append(bad, spec.FieldError{Path: name, Message: "is not base64"})
			}
			data = plain
		default:
			if wrong := badText(text); wrong != "" {
				bad = append(bad, spec.FieldError{Path: name, Message: wrong})
				continue
			}
			attrs[name] = text
		}
	}
	if members["data"] != nil && members["data_base64"] != nil {
		bad = append(bad, spec.FieldError{Path: "data", Message: "both data and data_base64 are given: send one of them"})
	}
	return attrs, data, bad
}

// fromAttributes builds the event; bad holds the errors so far.
func fromAttributes(attrs map[string]string, data []byte, bad []spec.FieldError) (events.Event, error) {
	if attrs == nil {
		return events.Event{}, errcode.Refuse(bad)
	}
	e := envelope(attrs)
	ce := event.New(event.CloudEventsVersionV1)
	for _, name := range slices.Sorted(maps.Keys(attrs)) {
		if f := spec.CheckLimit(limits.Shorten(name, limits.Word.Max), max(len(name), len(attrs[name])), limits.Envelope); f != nil {
			bad = append(bad, *f)
			continue
		}
		if f := setAttribute(&ce, name, attrs[name]); f != nil {
			bad = append(bad, *f)
		}
	}
	known := map[string]bool{}
	for _, f := range bad {
		known[f.Path] = true
	}
	if _, given := attrs["specversion"]; !given && !known["specversion"] {
		bad = append(bad, spec.FieldError{Path: "specversion", Message: `is missing: send "1.0"`})
	}
	for _, f := range validate(ce) {
		if !known[f.Path] {
			bad = append(bad, f)
		}
	}
	e.Time = ce.Time()

	row, ok := events.EntryOf(events.Type(attrs["type"]))
	if !ok {
		if attrs["type"] == "" {
			return e, errcode.Refuse(bad)
		}
		return e, unknownType(attrs["type"], bad)
	}
	if err := tooLarge(row, len(data)); err != nil {
		return e, err
	}
	if t := attrs[extExpiry]; row.Class == events.ClassCommand && t != "" {
		at, err := types.ParseTime(t)
		if err != nil {
			bad = append(bad, spec.FieldError{Path: extExpiry, Message: notATime(t)})
		}
		e.Expires = at.UTC()
	}
	if row.Class == events.ClassFact && attrs[extSequence] != "" {
		n, err := strconv.ParseUint(attrs[extSequence], 10, 64)
		if err != nil {
			bad = append(bad, spec.FieldError{Path: extSequence, Message: strconv.Quote(attrs[extSequence]) + " is not a whole number"})
		}
		e.Number = n
	}
	bad = append(bad, checkEntity(row, e.Entity)...)
	if row.Class == events.ClassCommand && json.Valid(data) {
		bad = append(bad, spec.CheckKeys(data, "data")...)
	}
	body, wrong := bodies.DecodeAs(row.New(), data, "data")
	for _, f := range wrong {
		if !slices.Contains(bad, f) { // a spec is checked for repeated keys too
			bad = append(bad, f)
		}
	}
	if len(bad) > 0 {
		return e, errcode.Refuse(bad)
	}
	e.Body = body
	return e, nil
}

func envelope(attrs map[string]string) events.Event {
	short := func(name string) string { return limits.Shorten(attrs[name], limits.Envelope.Max) }
	e := events.Event{ID: short("id"), Source: short("source"), Entity: short("subject"), Cause: short(extCause)}
	if tracing.Valid(attrs[extTrace]) { // W3C Trace Context: ignore a malformed one
		e.Trace = attrs[extTrace]
	}
	return e
}

func setAttribute(ce *event.Event, name, value string) *spec.FieldError {
	switch name {
	case "specversion":
		if value != event.CloudEventsVersionV1 {
			return &spec.FieldError{Path: name, Message: strconv.Quote(value) + ` is not understood: send "1.0"`}
		}
	case "id", "source", "subject":
		setVerbatim(ce, name, value)
	case "type":
		ce.SetType(value)
	case "dataschema":
		ce.SetDataSchema(value)
	case "datacontenttype":
		ce.SetDataContentType(value)
		media, _, _ := strings.Cut(strings.ToLower(value), ";")
		if media = strings.TrimSpace(media); media != mediaJSON && !strings.HasSuffix(media, "+json") {
			return &spec.FieldError{Path: name, Message: strconv.Quote(value) + " is not understood: send " + mediaJSON}
		}
	case "time":
		t, err := types.ParseTime(value)
		if err != nil {
			return &spec.FieldError{Path: name, Message: notATime(value)}
		}
		ce.SetTime(t.UTC())
	default:
		if err := ce.Context.SetExtension(name, value); err != nil {
			return &spec.FieldError{Path: name, Message: "is not a legal extension name: use a-z and 0-9"}
		}
	}
	return nil
}

func notATime(value string) string {
	return strconv.Quote(value) + " is not a time: write 2006-01-02T15:04:05Z (RFC 3339)"
}

// validate returns the SDK's validation errors, in order of attribute.
func validate(ce event.Event) []spec.FieldError {
	wrong, _ := errors.AsType[event.ValidationError](ce.Validate())
	var out []spec.FieldError
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		message := wrong[name].Error()
		if (name == "id" && ce.ID() == "") || (name == "source" && strings.TrimSpace(ce.Source()) == "") || (name == "type" && ce.Type() == "") {
			message = "is missing: every event needs one"
		}
		out = append(out, spec.FieldError{Path: name, Message: message})
	}
	return out
}

func unknownType(name string, bad []spec.FieldError) error {
	var known []string
	for _, row := range events.Catalog() {
		known = append(known, string(row.Type))
	}
	f := spec.FieldError{Path: "type", Message: strconv.Quote(name) + " is not in the catalogue", Hint: spec.DidYouMean(name, known)}
	return &errcode.ValidationError{Fields: append(bad, f), Cause: events.ErrUnknownType}
}
