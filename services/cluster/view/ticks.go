package view

import (
	"slices"
	"strings"
	"time"
)

// ticks are the steps of a time axis, each with a short name.
var ticks = []time.Duration{
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour,
}

// TickStep returns the shortest step of a time axis of this length that has at most so many ticks.
func TickStep(total time.Duration, most float64) time.Duration {
	i := slices.IndexFunc(ticks, func(s time.Duration) bool { return float64(s)*most >= float64(total) })
	if i < 0 {
		return total
	}
	return ticks[i]
}

// TickName names a tick: 0, 500ms, 30s, 1m, 2h.
func TickName(at time.Duration) string {
	name := strings.TrimSuffix(at.String(), "m0s")
	switch {
	case name != at.String():
		name += "m"
		if h, ok := strings.CutSuffix(name, "h0m"); ok {
			name = h + "h"
		}
	case at == 0:
		name = "0"
	}
	return name
}
