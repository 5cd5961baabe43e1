package controller_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/controller/controllertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counter is a small machine: job.scale adds one and publishes job.scaled with the sum; job.stop is
// refused, or with Now ends the entity; member-join is answered with the sum, a planned one adds
// one before; a scale to 99 sets a deadline, to 7 publishes a launch, to 13 panics.
type counter struct{}

type sum struct {
	View struct {
		Count int `json:"count"`
	} `json:"view"`
	Due   time.Time `json:"due,omitzero"`
	Ended bool      `json:"ended,omitempty"`
}

func (counter) New(string) sum           { return sum{} }
func (counter) Deadline(s sum) time.Time { return s.Due }

func (counter) Step(s sum, in events.Input, now time.Time) (sum, events.Decision) {
	var d events.Decision
	publish := func(b events.Body) { d.Facts = append(d.Facts, events.Fact{Body: b}) }
	switch b := in.Body.(type) {
	case events.JobScale:
		if b.Workers.Max == 13 {
			panic("thirteen")
		}
		s.View.Count++
		publish(events.JobScaled{Job: b.Job, Workers: spec.Workers{Min: s.View.Count, Max: s.View.Count}})
		switch b.Workers.Max {
		case 99:
			s.Due = now.Add(5 * time.Second)
		case 7:
			d.Launches = append(d.Launches, events.Launch{Job: b.Job, Node: "node-a", Phase: events.PhaseRun})
		}
	case events.JobStop:
		if !b.Now {
			d.Refusal = errcode.Errorf(errcode.Invalid, "%s is never stopped", b.Job)
			break
		}
		s.Ended = true
		publish(events.JobStopped{JobEnd: events.JobEnd{Job: b.Job, Reason: "asked"}})
		d.Forget = true
	case events.MemberJoin:
		if b.Planned {
			s.View.Count++
			publish(events.JobScaled{Job: b.Job})
		}
		d.Reply = events.MemberWaiting{Job: b.Job, Proposed: ident.Generation(s.View.Count)}
	case events.Tick:
		d.Forget = s.Ended
		if !s.Due.IsZero() && !now.Before(s.Due) {
			s.Due = time.Time{}
			publish(events.JobFinishing{Job: "a"})
		}
	}
	return s, d
}

func route(in events.Input, _ func() []string, _ func(string) (sum, bool)) []string {
	switch b := in.Body.(type) {
	case events.JobScale:
		return []string{string(b.Job)}
	case events.JobStop:
		return []string{string(b.Job)}
	case events.MemberJoin:
		return []string{string(b.Job)}
	}
	return nil
}

func host(t *testing.T, p broker.Ports, change func(*controller.Options[sum])) *controller.Host[sum] {
	t.Helper()
	o := controller.Options[sum]{
		Service: events.ServiceRegistry, Machine: counter{}, Bucket: events.BucketJobs, Ports: p, Route: route,
		Consumers: []broker.Consumer{{Stream: events.StreamCommands, Durable: "registry", Subjects: []string{events.AllJobCommands}}},
		Requests:  []controller.Request{{Verb: events.VerbJoin, Decode: controller.As[events.MemberJoin]}},
		Reject: func(e events.Event, why error) (events.Fact, bool) {
			return events.Fact{Entity: e.Entity, Body: events.JobRejected{
				Command: e.ID, Errors: []spec.FieldError{{Path: "command", Message: why.Error()}},
			}}, true
		},
	}
	if change != nil {
		change(&o)
	}
	h, err := controller.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func processor(t *testing.T, p broker.Ports) *controller.Processor[sum] {
	t.Helper()
	n := 0
	tr, err := controller.NewProcessor(controller.Options[sum]{
		Service: events.ServiceRegistry, Machine: counter{}, Bucket: events.BucketJobs, Ports: p,
		NewID: func() string { n++; return strconv.Itoa(n) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func command(t *testing.T, p broker.Ports, id string, b events.Body) {
	t.Helper()
	controllertest.PublishEvent(t, p, events.Event{ID: id, Source: "/test", Entity: "a", Body: b})
}

func scale(job string, most int) events.JobScale {
	return events.JobScale{Job: ident.JobID(job), Workers: spec.Workers{Min: 1, Max: most}}
}

func input(id string, b events.Body) events.Input {
	return events.Input{ID: id, Source: "/test", Body: b}
}

// published lists the facts in the log as "scaled 1" (kind and number).
func published(t *testing.T, p broker.Ports) string {
	t.Helper()
	return controllertest.Facts(t, p, func(e events.Event) string { return e.Body.Type().Kind() + " " + strconv.FormatUint(e.Number, 10) })
}

func wantPublished(t *testing.T, p broker.Ports, want ...string) {
	t.Helper()
	if got := published(t, p); got != strings.Join(want, ", ") {
		t.Errorf("published %v, want %v", got, want)
	}
}

// count reads the stored sum of an entity; -1 = no document.
func count(t *testing.T, p broker.Ports, entity string) int {
	t.Helper()
	value, _, err := p.Buckets.Bucket(events.BucketJobs).Load(t.Context(), entity)
	if err != nil {
		return -1
	}
	v, err := document.View[struct {
		Count int `json:"count"`
	}](value)
	if err != nil {
		t.Fatal(err)
	}
	return v.Count
}
