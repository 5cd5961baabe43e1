package job

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/golden"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// course is a job whose loss falls, which falls back by 20 steps in its second generation, and
// which reports its accuracy once.
func course() (facts []events.Event) {
	at := began
	add := func(g ident.Generation, step uint64, more map[string]events.Metric) {
		at = at.Add(5 * time.Second)
		values := map[string]events.Metric{"loss": {Value: math.Exp(-float64(step) / 100), Step: step, At: at}}
		for name, m := range more {
			values[name] = m
		}
		facts = append(facts, events.Event{Time: at, Body: events.JobProgressed{Job: mnist, Generation: g, Step: step, Values: values}})
	}
	for step := uint64(10); step <= 200; step += 10 {
		add(1, step, nil)
	}
	for step := uint64(180); step <= 400; step += 10 {
		add(2, step, map[string]events.Metric{"accuracy": {Value: 0.9, Step: 180, Rank: 1}})
	}
	return facts
}

func TestCurvesAreDrawn(t *testing.T) {
	var b bytes.Buffer
	for _, c := range view.Curves(course()) {
		if err := drawCurve(&b, c, screen.Palette{}, 60); err != nil {
			t.Fatal(err)
		}
	}
	golden.Compare(t, "testdata/metrics.txt", b.String())
}
