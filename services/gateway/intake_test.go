package gateway_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/services/gateway"
)

const submitEvent = `{"specversion": "1.0", "id": "e1", "source": "/me", "type": "dev.regroup.job.submit.v1", "data": {"spec": ` + job + `}}`

// commands returns what is stored on the stream of commands.
func (w *world) commands() (all []events.Event) {
	w.Helper()
	end := errors.New("end")
	err := w.ports.Log.Follow(w.Context(), broker.Follow{Stream: events.StreamCommands, Subjects: []string{events.AllCommands}, Start: broker.FromFirst}, func(s broker.Stored) error {
		e, err := cloudevent.Decode(s.Header, s.Data)
		all = append(all, e)
		if err != nil {
			return err
		}
		if last, err := w.ports.Log.Last(w.Context(), events.StreamCommands, events.AllCommands); err != nil || last.Sequence == s.Sequence {
			return end
		}
		return nil
	}, nil)
	if !errors.Is(err, end) {
		w.Fatal(err)
	}
	return all
}

// TestEventsInEveryMode store the same command.
func TestEventsInEveryMode(t *testing.T) {
	w := bare(t, nil)
	binary := []string{"Content-Type: application/json", "ce-specversion: 1.0", "ce-id: e1", "Ce-Source: /me", "CE-TYPE: dev.regroup.job.submit.v1"}
	for i, c := range []struct {
		body    string
		headers []string
	}{
		{`{"spec": ` + job + `}`, binary},
		{strings.Replace(submitEvent, "e1", "e2", 1), []string{"Content-Type: application/cloudevents+json; charset=utf-8"}},
		{strings.Replace(submitEvent, "e1", "e3", 1), []string{"Content-Type: application/json"}},
		{"[" + strings.Replace(submitEvent, "e1", "e4", 1) + "," + strings.Replace(submitEvent, "e1", "e5", 1) + "]", []string{"Content-Type: application/cloudevents-batch+json"}},
	} {
		a := w.do("POST", "/api/v1/events", c.body, c.headers...)
		var p gateway.Published
		if a.status != http.StatusAccepted {
			t.Errorf("%d: %d %s", i, a.status, a.body)
			continue
		}
		a.into(t, &p)
		for _, e := range p.Events {
			if e.Source != "/me" || e.Type != "dev.regroup.job.submit.v1" || e.Job == nil || *e.Job != ident.JobIDFrom("x", "/me", e.ID) {
				t.Errorf("%d: %+v", i, e)
			}
		}
	}
	all := w.commands()
	if len(all) != 5 {
		t.Fatalf("%d commands are stored, want 5", len(all))
	}
	for i, e := range all {
		s, ok := e.Body.(events.JobSubmit)
		if !ok || e.ID != fmt.Sprintf("e%d", i+1) || e.Source != "/me" || e.Time.IsZero() || s.Spec.Name != "x" {
			t.Errorf("%+v", e)
		}
	}
	if a := w.do("POST", "/api/v1/events", `{"spec": `+job+`}`, binary...); a.status != http.StatusAccepted || len(w.commands()) != 5 {
		t.Errorf("a repeat: %d, and %d commands", a.status, len(w.commands()))
	}
}

// TestTheJobOfAnEventExists, whatever its source and id.
func TestTheJobOfAnEventExists(t *testing.T) {
	w := start(t)
	for _, c := range [][2]string{{"/client/zoë", "1"}, {"HTTP://Example.com", "2"}, {"/me", " 3"}} {
		var p gateway.Published
		w.do("POST", "/api/v1/events", strings.Replace(strings.Replace(submitEvent, "/me", c[0], 1), "e1", c[1], 1), "Content-Type: application/cloudevents+json").into(t, &p)
		w.eventually("the job is there", func() bool { return w.get("/api/v1/jobs/"+string(*p.Events[0].Job)).status == http.StatusOK })
	}
}

// TestRefusedEvents name the attribute, and nothing is stored.
func TestRefusedEvents(t *testing.T) {
	w := bare(t, nil)
	structured := "Content-Type: application/cloudevents+json"
	batch := "Content-Type: application/cloudevents-batch+json"
	fact := `{"specversion": "1.0", "id": "e1", "source": "/regroup/registry", "type": "dev.regroup.job.finishing.v1", "subject": "x-0001", "data": {"job": "x-0001"}}`
	for name, c := range map[string]struct {
		body, media string
		status      int
		path        string
	}{
		"no id":           {strings.Replace(submitEvent, `"id": "e1", `, "", 1), structured, http.StatusBadRequest, "id"},
		"unknown type":    {strings.Replace(submitEvent, "submit", "submti", 1), structured, http.StatusBadRequest, "type"},
		"a fact":          {fact, structured, http.StatusForbidden, "type"},
		"a fact in batch": {"[" + submitEvent + "," + fact + "]", batch, http.StatusBadRequest, "[1].type"},
		"a bad spec":      {strings.Replace(submitEvent, `"x"`, `"X y"`, 1), structured, http.StatusBadRequest, "name"},
		"a bad time":      {strings.Replace(submitEvent, `"id"`, `"time": "now", "id"`, 1), structured, http.StatusBadRequest, "time"},
		"second of batch": {"[" + submitEvent + "," + strings.Replace(submitEvent, `"source": "/me", `, "", 1) + "]", batch, http.StatusBadRequest, "[1].source"},
		"empty batch":     {"[]", batch, http.StatusBadRequest, ""},
		"no batch":        {"{}", batch, http.StatusBadRequest, ""},
		"other mode":      {submitEvent, "Content-Type: application/cloudevents+avro", http.StatusUnsupportedMediaType, "Content-Type"},
		"no event":        {"hello", "Content-Type: text/plain", http.StatusBadRequest, ""},
		"nothing":         {"", "Content-Type: ", http.StatusBadRequest, ""},
	} {
		a := w.do("POST", "/api/v1/events", c.body, c.media)
		p := a.problem(t)
		found := c.path == ""
		for _, f := range p.Errors {
			found = found || f.Path == c.path
		}
		if a.status != c.status || p.Code != errcode.Invalid || !found || len(p.Errors) == 0 {
			t.Errorf("%s: %d %s, want %d about %q", name, a.status, a.body, c.status, c.path)
		}
	}
	long := strings.Replace(submitEvent, `["true"]`, `["`+strings.Repeat("x", 70<<10)+`"]`, 1)
	many := "[" + strings.Repeat(submitEvent+",", 256) + submitEvent + "]"
	for name, c := range map[string][2]string{"long": {long, structured}, "long in batch": {"[" + submitEvent + "," + long + "]", batch}, "many": {many, batch}, "huge": {strings.Repeat("x", 2<<20), structured}} {
		if a := w.do("POST", "/api/v1/events", c[0], c[1]); a.status != http.StatusRequestEntityTooLarge || a.problem(t).Code != errcode.TooLarge {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if _, err := w.ports.Log.Last(t.Context(), events.StreamCommands, events.AllCommands); errcode.Of(err) != errcode.NotFound {
		t.Errorf("something was stored: %v", err)
	}
}

// TestAJobIsFollowedBeforeItsServicesAnswer: the answer to a submission names the job, and a client
// follows that at once.
func TestAJobIsFollowedBeforeItsServicesAnswer(t *testing.T) {
	w := bare(t, nil)
	var p gateway.Published
	w.do("POST", "/api/v1/events", submitEvent, "Content-Type: application/cloudevents+json").into(t, &p)
	s := w.stream("/api/v1/jobs/" + string(*p.Events[0].Job) + "/events")
	w.services()
	if i := s.next(); !strings.Contains(i.data, "dev.regroup.job.submitted.v1") {
		t.Errorf("%+v", i)
	}
	if a := w.get("/api/v1/jobs/other-1234/events"); a.status != http.StatusNotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestAnEventIsAnsweredByFacts: a client that sends an event and reads the stream needs nothing
// else.
func TestAnEventIsAnsweredByFacts(t *testing.T) {
	w := start(t)
	s := w.stream("/api/v1/events?type=job.*")
	if a := w.do("POST", "/api/v1/events", submitEvent, "Content-Type: application/cloudevents+json"); a.status != http.StatusAccepted {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if i := s.next(); !strings.Contains(i.data, `"causationid":"e1"`) || !strings.Contains(i.data, "dev.regroup.job.submitted.v1") {
		t.Errorf("%+v", i)
	}
	if a := w.do("POST", "/api/v1/events", `{"specversion": "1.0", "id": "e2", "source": "/me", "type": "dev.regroup.job.scale.v1", "data": {"job": "none-0000", "workers": {"min": 1, "max": 2}}}`, "Content-Type: application/cloudevents+json"); a.status != http.StatusAccepted {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for {
		if i := s.next(); strings.Contains(i.data, `"command":"e2"`) {
			return
		}
	}
}
