package screen

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// TestStepRate checks that the rate is that of the last seconds, not the step divided by the time
// since the start, and that a rank that lags does not reduce it.
func TestStepRate(t *testing.T) {
	var p StepRate
	if got := p.Text(); got != "no step yet" {
		t.Errorf("of nothing: %q", got)
	}
	say := func(after time.Duration, g ident.Generation, rank ident.Rank, step uint64, loss float64) string {
		b := events.Progress{Generation: g, Rank: rank, Step: step}
		if loss > 0 {
			b.Metrics = map[string]float64{"loss": loss}
		}
		p.Take(b, t0.Add(after))
		return p.Text()
	}
	for _, c := range []struct{ got, want string }{
		{say(0, 1, 0, 100_000, 0.5), "step 100000 · loss 0.5"}, // no rate is known at first
		{say(500*time.Millisecond, 1, 1, 99_999, 7), "step 100000 · loss 0.5"},
		{say(600*time.Millisecond, 1, 1, 100_001, 7), "step 100001 · loss 0.5"}, // of the lowest rank
		{say(2*time.Second, 1, 0, 100_004, 0.25), "step 100004 · 2 steps/s · loss 0.25"},
		{say(20*time.Second, 1, 0, 100_006, 0), "step 100006 · 9 s/step · loss 0.25"},
		{say(30*time.Second, 2, 0, 90_000, 0), "step 90000 · loss 0.25"}, // a new generation, from its commit
		{say(31*time.Second, 1, 0, 100_007, 0), "step 90000 · loss 0.25"},
		{say(32*time.Second, 2, 0, 90_010, 0), "step 90010 · 5 steps/s · loss 0.25"},
		{say(33*time.Second, 3, 0, 90_010, 0.5), "step 90010 · loss 0.5"},
		{say(34*time.Second, 3, 1, 90_015, 0.125), "step 90015 · 5 steps/s · loss 0.5"},
		{say(44*time.Second, 3, 1, 90_065, 0.125), "step 90065 · 5 steps/s · loss 0.125"}, // rank 0 says no more
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// TestMetricsText formats few, many, and badly named metrics on one line.
func TestMetricsText(t *testing.T) {
	v := events.JobView{State: events.JobStateRunning, Reported: map[string]events.Metric{}}
	if got := view.MetricsText(v, t0); got != "" {
		t.Errorf("of nothing: %q", got)
	}
	v.Reported["x\ny"] = events.Metric{Value: 1e308, At: t0.Add(-time.Minute)}
	v.Reported[strings.Repeat("é", 100)] = events.Metric{Value: -0.1234567891, Step: 3, At: t0.Add(-2 * time.Second)}
	want := "reported: " + strings.Repeat("é", 31) + `… -0.123457 at step 3, 2.0s ago; x\ny 1e+308, 1m00s ago`
	if got := view.MetricsText(v, t0); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	v.State, v.Ended = events.JobStateSucceeded, t0.Add(-time.Second)
	if got := view.MetricsText(v, t0); !strings.Contains(got, "at step 3, 1.0s before the end;") {
		t.Errorf("of a job that has ended: %s", got)
	}
	for i := range 300 {
		v.Reported[fmt.Sprint("m", i)] = events.Metric{}
	}
	if got := view.MetricsText(v, t0); len(got) > 400 || !strings.HasSuffix(got, "; 290 more") {
		t.Errorf("of 302: %s", got)
	}
}
