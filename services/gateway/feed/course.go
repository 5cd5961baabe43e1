package feed

import (
	"context"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/services/cluster"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// Course returns the points of a job's metrics by name. Those before the first that this process
// has heard are of the facts that the registry has stored.
func (f *Feed) Course(ctx context.Context, id ident.JobID) (map[string][]Point, error) {
	at := broker.Follow{
		Stream: events.StreamFacts, Start: broker.FromFirst,
		Subjects: []string{events.FactSubject(events.JobProgressed{}.Type(), string(id))},
	}
	seen := cluster.Decoder{} // passes over facts that come twice
	var facts []events.Event
	err := cluster.ReadStored(ctx, f.ports.Log, at, func(s broker.Stored) error {
		if i, ok := f.item(s, seen); ok {
			facts = append(facts, i.Event)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	stored, live := storedPoints(facts), f.Series(id)
	for name, points := range live {
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

// storedPoints returns the points of a job's JobProgressed: the step, the steps in a second, and
// each metric that was reported.
func storedPoints(facts []events.Event) map[string][]Point {
	all := map[string][]Point{}
	for _, e := range facts {
		if b, ok := e.Body.(events.JobProgressed); ok && b.Step > 0 {
			all[MetricStep] = append(all[MetricStep], Point{e.Time, float64(b.Step), b.Generation, b.Step})
		}
	}
	for _, c := range view.Curves(facts) {
		if len(all) == maxSeries {
			break
		}
		for _, p := range c.Points {
			all[c.Name] = append(all[c.Name], Point{p.Time, p.Value, p.Generation, p.Step})
		}
	}
	return all
}

// thinned drops every second point until there are at most maxPoints. The newest stays.
func thinned(points []Point) []Point {
	for len(points) > maxPoints {
		var kept []Point
		for i := (len(points) - 1) % 2; i < len(points); i += 2 {
			kept = append(kept, points[i])
		}
		points = kept
	}
	return points
}
