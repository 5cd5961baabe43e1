package gateway

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/services/gateway/otlp"
)

// Published answers the publication of events: they are stored, and facts will answer them.
type Published struct {
	Events []PublishedEvent `json:"events"`
}

// PublishedEvent is one of them.
type PublishedEvent struct {
	ID      string       `json:"id"`
	Source  string       `json:"source"`
	Type    events.Type  `json:"type"`
	Subject string       `json:"subject,omitempty"`
	Job     *ident.JobID `json:"job,omitempty"` // of a job.submit: the job's id, unless another event's job has it
}

// publish takes CloudEvents in the three modes of the HTTP protocol binding. Of a batch either all
// are stored or, if one is refused, none; if the brokers fail in its middle the answer is an error,
// and the batch may be sent again: what is stored already is stored once.
func (g *Gateway) publish(w http.ResponseWriter, r *http.Request) error {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return fmt.Errorf("read the event: %w", err)
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		media = ""
	}
	all, err := decode(media, r.Header, text)
	if err != nil {
		return err
	}
	var bad []spec.FieldError
	for i := range all {
		if err := g.mayPublish(asker(r.Context()), &all[i]); err != nil {
			if len(all) == 1 {
				return err
			}
			bad = append(bad, spec.FieldError{Path: fmt.Sprintf("[%d]", i), Message: err.Error()})
		}
	}
	if len(bad) > 0 {
		return withStatus(http.StatusForbidden, errcode.Refuse(bad))
	}
	done := Published{Events: []PublishedEvent{}}
	for i, e := range all {
		if e.Time.IsZero() {
			e.Time = g.Now()
		}
		e.Trace = cmp.Or(e.Trace, tracing.FromContext(r.Context()))
		if err := g.commands.store(r.Context(), e); err != nil {
			return inBatch(err, i, len(all))
		}
		p := PublishedEvent{ID: e.ID, Source: e.Source, Type: e.Body.Type(), Subject: e.Entity}
		if s, ok := e.Body.(events.JobSubmit); ok {
			id := ident.JobIDFrom(s.Spec.Name, e.Source, e.ID)
			p.Job = &id
			g.awaited.add(id)
		}
		done.Events = append(done.Events, p)
	}
	return answer(w, http.StatusAccepted, done)
}

// awaited holds the newest jobs whose submission was stored here: a client may follow one that no
// service has answered yet.
type awaited struct {
	mu     sync.Mutex
	newest []ident.JobID
}

// maxAwaited bounds them. Services answer within milliseconds.
const maxAwaited = 1024

func (a *awaited) add(id ident.JobID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.newest) >= maxAwaited {
		a.newest = slices.Delete(a.newest, 0, 1)
	}
	a.newest = append(a.newest, id)
}

func (a *awaited) has(id ident.JobID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.newest, id)
}

// takeSpans stores the spans of an OTLP exporter beside those of the services, so that the traces
// of a job have what programs outside of it add. A request that is sent again stores them again;
// who reads them counts each once.
func (g *Gateway) takeSpans(w http.ResponseWriter, r *http.Request) error {
	packed, err := io.ReadAll(r.Body)
	if err != nil {
		return fmt.Errorf("read the spans: %w", err)
	}
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // a wrong one is refused below
	text, err := otlp.Unpack(r.Header.Get("Content-Encoding"), packed)
	if err != nil {
		return err
	}
	b, err := otlp.Decode(media, text, append(events.ServiceNames(), events.ServiceAgent, events.ServiceGateway, "worker"))
	if err != nil {
		return err
	}
	for _, m := range b.Messages {
		if _, err := g.Ports.Log.Publish(r.Context(), broker.Message{Subject: events.SpanSubject(events.ServiceGateway), Data: m}); err != nil {
			return err
		}
	}
	text, err = otlp.Answer(media, b)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", media)
	_, _ = w.Write(text) // the client has gone
	return nil
}

// decode reads one event, or a batch.
func decode(media string, h http.Header, text []byte) ([]events.Event, error) {
	if media == mediaBatch {
		return decodeBatch(text)
	}
	if strings.HasPrefix(media, "application/cloudevents") && media != mediaEvent {
		return nil, withStatus(http.StatusUnsupportedMediaType, wrong("Content-Type", fmt.Sprintf("%q is not understood: send %s or %s, or binary mode", media, mediaEvent, mediaBatch)))
	}
	header := map[string][]string{}
	binary := false
	for name, values := range h {
		if len(name) > 3 && strings.EqualFold(name[:3], "ce-") {
			header[strings.ToLower(name)] = values
			binary = true
		}
	}
	switch {
	case media == mediaEvent:
		header = map[string][]string{"Content-Type": {mediaEvent}}
	case binary && h.Get("Content-Type") != "":
		header["ce-datacontenttype"] = h.Values("Content-Type")
	}
	e, err := command(header, text)
	if err != nil {
		return nil, err
	}
	return []events.Event{e}, nil
}

func decodeBatch(text []byte) ([]events.Event, error) {
	var parts []json.RawMessage
	if f := spec.CheckLimit("", limits.Nesting(text), limits.Depth); f != nil {
		return nil, errcode.Refuse([]spec.FieldError{*f})
	}
	if err := json.Unmarshal(text, &parts); err != nil {
		return nil, wrong("", "is not a batch of CloudEvents: send a JSON list of them")
	}
	if len(parts) > limits.Batch.Max {
		return nil, errcode.Errorf(errcode.TooLarge, "the batch has %s (%s)", english.Plural(len(parts), "event"), limits.Batch)
	}
	if len(parts) == 0 {
		return nil, wrong("", "the batch is empty: send at least one event")
	}
	all := make([]events.Event, len(parts))
	var bad []spec.FieldError
	for i, part := range parts {
		e, err := command(map[string][]string{"Content-Type": {mediaEvent}}, part)
		if errcode.Of(err) == errcode.TooLarge {
			return nil, inBatch(err, i, len(parts))
		}
		for _, f := range errcode.FieldErrorsOf(err) {
			f.Path = spec.JoinPath(fmt.Sprintf("[%d]", i), f.Path)
			bad = append(bad, f)
		}
		all[i] = e
	}
	return all, errcode.Refuse(bad)
}

// command decodes an event that a client may publish.
func command(header map[string][]string, text []byte) (events.Event, error) {
	e, err := cloudevent.Decode(header, text)
	if err != nil {
		return e, err
	}
	row, _ := events.EntryOf(e.Body.Type()) // Decode knows it
	if row.Class != events.ClassCommand {
		var commands []string
		for _, c := range events.Catalog() {
			if c.Class == events.ClassCommand {
				commands = append(commands, string(c.Type))
			}
		}
		return e, withStatus(http.StatusForbidden, wrong("type", fmt.Sprintf("%q is a fact, which only %s may publish; clients publish %s", row.Type, row.Writer, strings.Join(commands, ", "))))
	}
	return e, nil
}

// inBatch names the event of a batch that an error is about.
func inBatch(err error, i, of int) error {
	if of == 1 || err == nil {
		return err
	}
	var fields *errcode.ValidationError
	if errors.As(err, &fields) {
		return err
	}
	return errcode.Errorf(errcode.Of(err), "event %d of %d: %w", i+1, of, err)
}
