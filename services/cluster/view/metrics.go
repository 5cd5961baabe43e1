package view

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

// progressText is the sentence for a JobProgressed: generation, step and values.
func progressText(b events.JobProgressed) string {
	parts := []string{b.Generation.String()}
	if b.Step > 0 {
		parts = append(parts, fmt.Sprintf("step %d", b.Step))
	}
	names := slices.SortedFunc(maps.Keys(b.Values), func(a, c string) int {
		return cmp.Or(cmp.Compare(rankOfName(a), rankOfName(c)), cmp.Compare(a, c))
	})
	for i, name := range names {
		if i == metricsShown {
			parts = append(parts, fmt.Sprintf("%d more", len(names)-i))
			break
		}
		parts = append(parts, nameText(name)+" "+Number(b.Values[name].Value))
	}
	return strings.Join(parts, " · ")
}

// rankOfName sorts the loss first, as the most important value.
func rankOfName(name string) int {
	if name == "loss" {
		return 0
	}
	return 1
}

func nameText(name string) string {
	name = OneLine(name)
	if utf8.RuneCountInString(name) > nameShown {
		name = string([]rune(name)[:nameShown-1]) + "…"
	}
	return name
}

// Number formats a value with at most six digits.
func Number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// Span formats a duration: 41ms, 1.1s, 2m13s, 3h02m, 4d03h.
func Span(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Round(time.Millisecond).Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// MS formats milliseconds as they are in facts.
func MS(ms float64) string { return Span(time.Duration(ms * float64(time.Millisecond))) }

// OneLine writes the line feeds of a text as in Go strings.
func OneLine(s string) string { return strings.ReplaceAll(s, "\n", `\n`) }
