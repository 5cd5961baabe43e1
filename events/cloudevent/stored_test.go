package cloudevent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/errcode"
)

// TestAnEventBelongsOnItsSubject: who may publish is a matter of the subject, so what else an event
// says about that must not count.
func TestAnEventBelongsOnItsSubject(t *testing.T) {
	fact := events.Event{ID: "1", Source: "/regroup/registry", Entity: "demo-1", Time: time.Now(), Body: events.JobStopping{Job: "demo-1"}}
	from := func(source string) events.Event {
		e := fact
		e.Source = source
		return e
	}
	within := fact
	within.Body = events.JobStopping{Job: "demo-2"}
	command := events.Event{ID: "1", Source: "/client/ada", Time: time.Now(), Body: events.JobStop{Job: "demo-1"}}
	by := command
	by.Source = "/submitter/ada"
	for _, c := range []struct {
		what    string
		event   events.Event
		subject string // empty = its own
		refused bool
	}{
		{"a fact", fact, "", false},
		{"a fact as another one", fact, events.FactSubject(events.WorkerExited{}.Type(), "demo-1"), true},
		{"a fact about another job", fact, events.FactSubject(events.JobStopping{}.Type(), "demo-2"), true},
		{"a fact as a command", fact, events.CommandSubject(events.JobStop{}.Type()), true},
		{"a fact of another writer", from("/regroup/agent/node-a/1"), "", true},
		{"a fact of nobody", from("/client/ada"), "", true},
		{"a fact with another job within", within, "", true},
		{"a command", command, "", false},
		{"a command as another one", command, events.CommandSubject(events.JobScale{}.Type()), true},
		{"a command as that of a submitter", command, "regroup.cmd.job.stop.by.ada", true},
		{"a command of a submitter", by, "", false},
		{"a command of a submitter as that of anybody", by, events.CommandSubject(events.JobStop{}.Type()), true},
		{"a command of a submitter as that of another", by, "regroup.cmd.job.stop.by.eve", true},
		{"a command of a submitter with a user", by, "regroup.cmd.job.stop.by.ada.as.root", true},
	} {
		for _, encode := range []func(events.Event) (broker.Message, error){cloudevent.Encode, cloudevent.EncodeStructured} {
			m, err := encode(c.event)
			if err != nil {
				t.Fatal(err)
			}
			if c.subject != "" {
				m.Subject = c.subject
			}
			e, err := cloudevent.DecodeStored(broker.Stored{Subject: m.Subject, Header: m.Header, Data: m.Data})
			if (err != nil) != c.refused || e.ID != "1" {
				t.Errorf("%s on %s: %v", c.what, m.Subject, err)
			}
			if c.refused && (errcode.Of(err) != errcode.Invalid || e.Body != nil) {
				t.Errorf("%s: %v, %v", c.what, err, e.Body)
			}
			if c.subject != "" && !strings.Contains(err.Error(), c.event.Subject()) {
				t.Errorf("%s: %v, which does not say where it belongs", c.what, err)
			}
		}
	}
}
