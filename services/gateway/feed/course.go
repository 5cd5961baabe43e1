package feed

import (
	"context"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
)

// Course returns the points of a job's metrics by name. Those of the time before this process heard
// of the job are what the registry has stored.
func (f *Feed) Course(ctx context.Context, id events.JobID) (map[string][]Point, error) {
	heard := f.Series(id)
	stored := map[string][]Point{}
	at := events.Follow{
		Stream: events.StreamFacts, Start: events.FromFirst,
		Subjects: []string{events.FactSubject(events.JobProgressed{}.Type(), string(id))},
	}
	once := Once{}
	var last events.Event
	err := untilCaughtUp(ctx, f.ports.Log, at, func(s events.Stored) error {
		if i, ok := f.item(s, once); ok {
			addStored(stored, last, i.Event)
			last = i.Event
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for name, points := range heard {
		if len(points) == 0 {
			continue
		}
		before := stored[name]
		if n, _ := slices.BinarySearchFunc(before, points[0].Time, func(p Point, t time.Time) int { return p.Time.Compare(t) }); n < len(before) {
			before = before[:n]
		}
		stored[name] = append(before, points...)
	}
	for name, points := range stored {
		stored[name] = thinned(points)
	}
	return stored, nil
}

// addStored adds the points of a stored fact. before is the one before it, or the zero value.
func addStored(all map[string][]Point, before, e events.Event) {
	b, ok := e.Body.(events.JobProgressed)
	if !ok {
		return
	}
	add := func(name string, value float64) { all[name] = append(all[name], Point{e.Time, value, b.Generation}) }
	if b.Step > 0 {
		add(MetricStep, float64(b.Step))
	}
	if last, ok := before.Body.(events.JobProgressed); ok && b.Step >= last.Step && e.Time.After(before.Time) {
		add(MetricStepsRate, float64(b.Step-last.Step)/e.Time.Sub(before.Time).Seconds())
	}
	for name, m := range b.Values {
		if _, known := all[name]; known || len(all) < seriesNames {
			add(name, m.Value)
		}
	}
}

// thinned drops every second point until there are at most seriesPoints. The newest stays.
func thinned(points []Point) []Point {
	for len(points) > seriesPoints {
		var kept []Point
		for i := (len(points) - 1) % 2; i < len(points); i += 2 {
			kept = append(kept, points[i])
		}
		points = kept
	}
	return points
}
