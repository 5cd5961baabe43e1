package job_test

import (
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
)

// TestASubmitterChangesItsOwnJobs, and they run as its user.
func TestASubmitterChangesItsOwnJobs(t *testing.T) {
	ada, eve := events.Submitter{Name: "ada", User: "training"}, events.Submitter{Name: "eve"}
	minimal := spec.Job{Name: "demo", Command: []string{"true"}, Workers: spec.Workers{Min: 1, Max: 2}}
	refusals := func(w *world, b events.Body) string {
		t.Helper()
		from := len(w.facts)
		d := w.step(t, b, 0)
		if d.Refusal != nil && len(d.Facts) == 0 { // the controller tells it, and not in the facts of the job
			return d.Refusal.Error()
		}
		var all []string
		for _, f := range w.facts[from:] {
			if r, ok := f.(events.JobRejected); ok {
				for _, e := range r.Errors {
					all = append(all, e.String())
				}
			}
		}
		return strings.Join(all, "; ")
	}
	submitted := func(by, user string) (*world, string) {
		t.Helper()
		w := newWorld()
		w.source = by
		s := minimal
		s.Processes.User = user
		return w, refusals(w, events.JobSubmit{Spec: s})
	}
	w, refused := submitted(ada.Source(), "")
	if refused != "" || w.s.View.Spec.Processes.User != "training" || w.s.View.By != "/submitter/ada/as/training" {
		t.Fatalf("%s; it runs as %q by %s", refused, w.s.View.Spec.Processes.User, w.s.View.By)
	}
	if other, refused := submitted(ada.Source(), "root"); !strings.Contains(refused, `processes.user: is "root": jobs of ada run as training`) || other.s.View.State != "" {
		t.Errorf("a job of ada as root: %q", refused)
	}
	if _, refused := submitted(ada.Source(), "training"); refused != "" {
		t.Errorf("a job of ada as training: %q", refused)
	}
	if w, refused := submitted(eve.Source(), "anybody"); refused != "" || w.s.View.Spec.Processes.User != "anybody" {
		t.Errorf("eve says as whom: %q", refused)
	}
	for _, b := range []events.Body{events.JobScale{Job: demo, Workers: spec.Workers{Min: 1, Max: 1}}, events.JobStop{Job: demo}, events.JobRemove{Job: demo}} {
		unknown := newWorld()
		unknown.source = eve.Source()
		if refused := refusals(unknown, b); !strings.Contains(refused, "there is no job") || unknown.s.Stop != nil {
			t.Errorf("%s of an unknown job: %q, %v", b.Type(), refused, unknown.s.Stop)
		}
		for _, source := range []string{eve.Source(), "/submitter/ada2", "/submitter/ad"} {
			w.source = source
			if refused := refusals(w, b); !strings.Contains(refused, "was submitted by /submitter/ada/as/training") || w.s.View.State != events.JobStateWaiting {
				t.Errorf("%s by %s: %q, %s", b.Type(), source, refused, w.s.View.State)
			}
		}
	}
	of := func(s string) *world {
		w, refused := submitted(s, "")
		if refused != "" {
			t.Fatal(refused)
		}
		return w
	}
	for _, c := range []struct{ owner, by string }{
		{ada.Source(), ada.Source()},
		{ada.Source(), "/submitter/ada"}, // issued anew, without a user
		{ada.Source(), "/client/root"},
		{"/client/root", "/client/eve"},
	} {
		w := of(c.owner)
		w.source = c.by
		if refused := refusals(w, events.JobScale{Job: demo, Workers: spec.Workers{Min: 1, Max: 1}}); refused != "" || w.s.View.Spec.Workers.Max != 1 {
			t.Errorf("%s scales the job of %s: %q", c.by, c.owner, refused)
		}
		if refused := refusals(w, events.JobStop{Job: demo}); refused != "" || w.s.View.State != events.JobStateStopped {
			t.Errorf("%s stops the job of %s: %q", c.by, c.owner, refused)
		}
	}
	w = of("/client/root")
	w.source = eve.Source()
	if refused := refusals(w, events.JobStop{Job: demo}); !strings.Contains(refused, "was submitted by /client/root") {
		t.Errorf("eve stops the job of root: %q", refused)
	}
}

// TestAnEnvironmentIsThatOfItsOwnJob: the name of another job's, which is in its record, gets
// nothing.
func TestAnEnvironmentIsThatOfItsOwnJob(t *testing.T) {
	for of, refused := range map[string]bool{ident.Origin("/test", "in1"): false, ident.Origin("/test", "in2"): true, "": false} {
		w := newWorld()
		s := spec.Job{Name: "demo", Command: []string{"true"}, Workers: spec.Workers{Min: 1, Max: 2}, Processes: spec.Processes{SubmitEnvironment: of}}
		w.step(t, events.JobSubmit{Spec: s}, 0)
		if got := w.s.View.State == ""; got != refused {
			t.Errorf("with the environment of %q it is refused: %t, want %t", of, got, refused)
		}
	}
}
