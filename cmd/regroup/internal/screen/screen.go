// Package screen formats terminal output: colours, tables, log prefixes, the status line, the
// history of a job in one line per event, the final summary, and the timeline. It is pure: it reads
// no clock and does no I/O but writing its result.
package screen

import (
	"fmt"
	"time"
)

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

// Plural formats a count: 1 worker, 2 workers.
func Plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
