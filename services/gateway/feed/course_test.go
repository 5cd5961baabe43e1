package feed

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/memory"
)

// TestCourse: a gateway that begins in the middle of a job shows what was reported before, and from
// then on what it hears itself.
func TestCourse(t *testing.T) {
	bus := memory.New()
	f := New(bus.Ports(), func(subject string, err error) { t.Errorf("%s: %v", subject, err) })
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errors.New("the test hangs"))
	defer cancel()
	began := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	const points = 4000
	for i := 1; i <= points; i++ {
		e := events.Event{
			ID: fmt.Sprint(i), Source: "/regroup/registry", Entity: "j", Number: uint64(i), Time: began.Add(time.Duration(i) * 5 * time.Second),
			Body: events.JobProgressed{Job: "j", Generation: 1, Step: uint64(10 * i), Values: map[string]events.Metric{"loss": {Value: float64(i), Step: uint64(10 * i)}}},
		}
		m, err := cloudevent.Encode(e)
		if err == nil {
			_, err = bus.Ports().Log.Publish(ctx, m)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	course := func() map[string][]Point {
		t.Helper()
		all, err := f.Course(ctx, "j")
		if err != nil {
			t.Fatal(err)
		}
		for name, list := range all {
			if len(list) > maxPoints || len(list) < maxPoints/4 {
				t.Errorf("%d points of %s", len(list), name)
			}
			for i := 1; i < len(list); i++ {
				if !list[i].Time.After(list[i-1].Time) {
					t.Fatalf("%s: point %d is not after the one before", name, i)
				}
			}
		}
		return all
	}
	all := course()
	if loss := all["loss"]; loss[len(loss)-1].Value != points || all[MetricStepsRate][7].Value != 2 {
		t.Errorf("loss ends with %v, the rate is %v", loss[len(loss)-1], all[MetricStepsRate][7])
	}
	if other, err := f.Course(ctx, "k"); err != nil || len(other) != 0 {
		t.Errorf("of another job: %v, %v", other, err)
	}

	now := began.Add(points*5*time.Second - 100*time.Second) // what was heard in the last 100 s replaces what is stored
	for i := range 200 {
		at := now.Add(time.Duration(i) * time.Second)
		f.series.take(events.Progress{Job: "j", Generation: 2, Step: uint64(50_000 + i), Metrics: map[string]float64{"loss": -1}}, at)
	}
	loss := course()["loss"]
	last := loss[len(loss)-1]
	if last.Value != -1 || last.Generation != 2 || loss[0].Value < 0 {
		t.Errorf("from %v to %v", loss[0], last)
	}
	for i := 1; i < len(loss); i++ {
		if loss[i-1].Value < 0 && loss[i].Value >= 0 {
			t.Errorf("stored points are among those that were heard: %v", loss[i])
		}
	}
}
