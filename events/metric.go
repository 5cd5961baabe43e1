package events

import (
	"maps"
	"time"

	"github.com/regroup-io/regroup/events/limits"
)

// Metric is the newest value that a program has reported under a name.
type Metric struct {
	Value float64   `json:"value"`
	Step  uint64    `json:"step,omitempty"` // after which it was reported; 0 = the program did not say
	Rank  int       `json:"rank"`           // of who reported it
	At    time.Time `json:"at,omitzero"`    // when that was heard, on the clock of who heard it
}

// MetricsOf are the values of one report, which was heard at a moment. steps are of the values that are not of step.
func MetricsOf(values map[string]float64, steps map[string]uint64, step uint64, rank int, at time.Time) map[string]Metric {
	out := make(map[string]Metric, len(values))
	for name, v := range values {
		m := Metric{Value: v, Step: step, Rank: rank, At: at}
		if s, ok := steps[name]; ok {
			m.Step = s
		}
		out[name] = m
	}
	return out
}

// MergeMetrics returns what is known with what is new, and whether that makes a difference. Of several ranks the lowest counts, unless
// another one is further. A value that is only repeated keeps its time. Neither map is modified. At most limits.Names are kept, then those
// of the newest report.
func MergeMetrics(known, news map[string]Metric) (all map[string]Metric, differ bool) {
	all = known
	for name, m := range news {
		old, have := known[name]
		switch {
		case have && m.Rank > old.Rank && m.Step <= old.Step:
			continue
		case have && m.Value == old.Value && m.Step == old.Step && m.Rank == old.Rank:
			continue
		case !differ:
			differ = true
			if all = maps.Clone(known); all == nil {
				all = make(map[string]Metric, len(news))
			}
		}
		all[name] = m
	}
	if len(all) > limits.Names.Max {
		return maps.Clone(news), true
	}
	return all, differ
}
