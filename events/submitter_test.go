package events_test

import (
	"testing"

	"github.com/regroup-io/regroup/events"
)

// TestSubmitters: source and subject name the same submitter, and no other text does.
func TestSubmitters(t *testing.T) {
	stop := events.JobStop{}.Type()
	for _, c := range []struct {
		events.Submitter
		source, subject string
	}{
		{events.Submitter{Name: "ada"}, "/submitter/ada", "regroup.cmd.job.stop.by.ada"},
		{events.Submitter{Name: "ada", User: "training"}, "/submitter/ada/as/training", "regroup.cmd.job.stop.by.ada.as.training"},
		{events.Submitter{Name: "ada-2", User: "ada.l:ml"}, "/submitter/ada-2/as/ada.l:ml", "regroup.cmd.job.stop.by.ada-2.as.ada%2El:ml"},
	} {
		if c.Source() != c.source || c.Subject(stop) != c.subject {
			t.Errorf("%+v: %s on %s", c.Submitter, c.Source(), c.Subject(stop))
		}
		if s, ok := events.SubmitterOf(c.source); !ok || s != c.Submitter {
			t.Errorf("%s is the source of %+v, %v", c.source, s, ok)
		}
		if s, ok := events.SubmitterAt(stop, c.subject); !ok || s != c.Submitter {
			t.Errorf("%s is the subject of %+v, %v", c.subject, s, ok)
		}
		if e := (events.Event{Source: c.source, Body: events.JobStop{}}); e.Subject() != c.subject {
			t.Errorf("%s publishes on %s", c.source, e.Subject())
		}
	}
	for _, source := range []string{"", "/submitter/", "/submitter/Ada", "/submitter/ada/", "/submitter/ada/as/", "/submitter/ada/as/a b", "/submitter/ada/as/x/as/y", "/submitter/ada.b", "/client/ada", "submitter/ada"} {
		if s, ok := events.SubmitterOf(source); ok {
			t.Errorf("%q is the source of %+v", source, s)
		}
	}
	for _, subject := range []string{"regroup.cmd.job.stop", "regroup.cmd.job.stop.by.", "regroup.cmd.job.stop.by.*", "regroup.cmd.job.stop.by.ada.as.", "regroup.cmd.job.stop.by.ada.as.a.b", "regroup.cmd.job.scale.by.ada"} {
		if s, ok := events.SubmitterAt(stop, subject); ok {
			t.Errorf("%q is the subject of %+v", subject, s)
		}
	}
}
