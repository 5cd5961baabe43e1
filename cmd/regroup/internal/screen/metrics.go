package screen

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/regroup-io/regroup/events"
)

// Limits for the values that a program reports.
const (
	metricsShown = 12
	nameShown    = 32 // characters
)

// MetricsText formats the latest values that a job's program has reported, on one line: grouped by
// step, the newest step first, with their age or, after the job has ended, the time before its end.
// "" = none.
func MetricsText(v events.JobView, now time.Time) string {
	all, until, since := v.Reported, now, " ago"
	if v.State.Terminal() {
		until, since = v.Ended, " before the end"
	}
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(all[b].Step, all[a].Step), cmp.Compare(rankOfName(a), rankOfName(b)), cmp.Compare(a, b))
	})
	var groups []string
	for i := 0; i < len(names) && i < metricsShown; {
		first := all[names[i]]
		newest := first.At
		var values []string
		for ; i < len(names) && i < metricsShown && all[names[i]].Step == first.Step; i++ {
			m := all[names[i]]
			values = append(values, nameText(names[i])+" "+Number(m.Value))
			if m.At.After(newest) {
				newest = m.At
			}
		}
		text := strings.Join(values, " · ")
		if first.Step > 0 {
			text += fmt.Sprintf(" at step %d", first.Step)
		}
		if !newest.IsZero() {
			text += ", " + Span(max(0, until.Sub(newest))) + since
		}
		groups = append(groups, text)
	}
	if len(groups) == 0 {
		return ""
	}
	if over := len(names) - metricsShown; over > 0 {
		groups = append(groups, fmt.Sprintf("%d more", over))
	}
	return "reported: " + strings.Join(groups, "; ")
}

// rankOfName sorts the loss first, as the most important value.
func rankOfName(name string) int {
	if name == "loss" {
		return 0
	}
	return 1
}

func nameText(name string) string {
	name = oneLine(name)
	if utf8.RuneCountInString(name) > nameShown {
		name = string([]rune(name)[:nameShown-1]) + "…"
	}
	return name
}

// Number formats a value with at most six digits.
func Number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
