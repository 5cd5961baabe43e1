package events

import (
	"fmt"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
)

// TestMergeMetrics: which value counts if several ranks report under one name, also after a return
// to an earlier step.
func TestMergeMetrics(t *testing.T) {
	at := time.Unix(100, 0)
	one := func(rank int, step uint64, v float64, at time.Time) map[string]Metric {
		return map[string]Metric{"loss": {Value: v, Step: step, Rank: ident.Rank(rank), At: at}}
	}
	known := one(1, 5, 0.5, at)
	for _, c := range []struct {
		name    string
		updates map[string]Metric
		want    Metric
		differ  bool
	}{
		{"the first rank", one(0, 5, 0.25, at.Add(1)), Metric{0.25, 5, 0, at.Add(1)}, true},
		{"a later one", one(2, 5, 0.25, at.Add(1)), known["loss"], false},
		{"a later one that is further", one(2, 6, 0.25, at.Add(1)), Metric{0.25, 6, 2, at.Add(1)}, true},
		{"said again", one(1, 5, 0.5, at.Add(1)), known["loss"], false},
		{"the same value at the next step", one(1, 6, 0.5, at.Add(1)), Metric{0.5, 6, 1, at.Add(1)}, true},
		{"back to an earlier step", one(1, 2, 0.75, at.Add(1)), Metric{0.75, 2, 1, at.Add(1)}, true},
		{"another name", map[string]Metric{"lr": {Value: 1}}, known["loss"], true},
		{"nothing", nil, known["loss"], false},
	} {
		all, differ := MergeMetrics(known, c.updates)
		if all["loss"] != c.want || differ != c.differ || len(known) != 1 || known["loss"].Value != 0.5 {
			t.Errorf("%s: %+v %t, want %+v %t", c.name, all["loss"], differ, c.want, c.differ)
		}
	}
	many := map[string]Metric{}
	for i := range limits.Names.Max {
		many[fmt.Sprint(i)] = Metric{}
	}
	if all, _ := MergeMetrics(many, one(0, 1, 1, at)); len(all) != 1 {
		t.Errorf("%d names are kept, of which all but one are old", len(all))
	}
	if all, _ := MergeMetrics(nil, one(0, 1, 1, at)); len(all) != 1 {
		t.Errorf("nothing is kept: %v", all)
	}
}
