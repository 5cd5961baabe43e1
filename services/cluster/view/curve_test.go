package view

import (
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// TestCurves follows a job whose loss falls, which falls back by 20 steps in its second generation,
// and which reports its accuracy once.
func TestCurves(t *testing.T) {
	var facts []events.Event
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	add := func(g ident.Generation, step uint64, more map[string]events.Metric) {
		at = at.Add(5 * time.Second)
		values := map[string]events.Metric{"loss": {Value: 1 / float64(step), Step: step}}
		for name, m := range more {
			values[name] = m
		}
		facts = append(facts, events.Event{Time: at, Body: events.JobProgressed{Job: "j", Generation: g, Step: step, Values: values}})
	}
	for step := uint64(10); step <= 200; step += 10 {
		add(1, step, nil)
	}
	for step := uint64(180); step <= 400; step += 10 {
		add(2, step, map[string]events.Metric{"accuracy": {Value: 0.9, Step: 180, Rank: 1}})
	}

	all := Curves(facts)
	names := ""
	for _, c := range all {
		names += c.Name + " "
	}
	if names != "steps/s accuracy loss " {
		t.Fatal(names)
	}
	// 20 and 23 facts; none for the first, and none for the one that fell back.
	if n := len(all[0].Points); n != 41 {
		t.Errorf("%d rates", n)
	}
	for _, p := range all[0].Points {
		if p.Value != 2 || p.Rank != -1 {
			t.Errorf("rate %+v", p)
		}
	}
	if accuracy := all[1].Points; len(accuracy) != 1 || accuracy[0].Value != 0.9 || accuracy[0].Step != 180 || accuracy[0].Rank != 1 {
		t.Errorf("accuracy: %+v", accuracy)
	}
	if loss := all[2].Points; len(loss) != 43 || loss[20].Step != 180 || loss[20].Generation != 2 {
		t.Errorf("loss: %+v", loss)
	}
}

// TestARateIsOfTheTimesOfSteps: the last point is published with the end of the job, long after its
// step.
func TestARateIsOfTheTimesOfSteps(t *testing.T) {
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	facts := []events.Event{
		{Time: at, Body: events.JobProgressed{Job: "j", Generation: 1, Step: 100, At: at}},
		{Time: at.Add(30 * time.Second), Body: events.JobProgressed{Job: "j", Generation: 1, Step: 150, At: at.Add(5 * time.Second)}},
	}
	if all := Curves(facts); len(all) != 1 || len(all[0].Points) != 1 || all[0].Points[0].Value != 10 {
		t.Errorf("%+v", all)
	}
}
