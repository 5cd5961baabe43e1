// Package screen formats terminal output: colours, tables, log prefixes, the status line, the
// history of a job in one line per event, the final summary, and the timeline. It is pure: it reads
// no clock and does no I/O but writing its result.
package screen

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/regroup-io/regroup/events/output"
)

// Table writes rows under a header in aligned columns; a row may have more cells than the header.
// Escape sequences for colour do not count.
func Table(w io.Writer, p Palette, header []string, rows [][]string) error {
	all := append([][]string{header}, rows...)
	for _, r := range rows {
		for i := range r {
			r[i] = strings.ReplaceAll(r[i], "\n", `\n`) // cells have one line
		}
	}
	var widths []int
	for _, r := range all {
		for i, cell := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], Width(cell))
		}
	}
	var b strings.Builder
	for n, r := range all {
		var line strings.Builder
		for i, cell := range r {
			line.WriteString(pad(cell, widths[i]) + "  ")
		}
		text := strings.TrimRight(line.String(), " ")
		if n == 0 {
			text = p.Head(text)
		}
		b.WriteString(text + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// TableOf is Table with a row for each value.
func TableOf[T any](w io.Writer, p Palette, header []string, all []T, row func(T) []string) error {
	rows := make([][]string, len(all))
	for i, x := range all {
		rows[i] = row(x)
	}
	return Table(w, p, header, rows)
}

// Fit cuts lines that are wider than a terminal, at its width, with ….
func Fit(text string, width int) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], width, "…")
	}
	return strings.Join(lines, "\n")
}

// Bytes formats a size: 412 MiB, 3.2 GiB; less than a MiB in KiB.
func Bytes[N int64 | uint64](n N) string {
	const kib, mib, gib = 1 << 10, 1 << 20, 1 << 30
	switch {
	case n >= gib:
		return fmt.Sprintf("%.1f GiB", float64(n)/gib)
	case n >= mib:
		return fmt.Sprintf("%d MiB", n/mib)
	default:
		return fmt.Sprintf("%d KiB", (n+kib-1)/kib)
	}
}

// Width is the number of columns of a text without colour. Every character counts as one.
func Width(s string) int { return utf8.RuneCountInString(output.Plain(s)) }

// pad fills a text up with spaces to n columns.
func pad(s string, n int) string { return s + strings.Repeat(" ", max(0, n-Width(s))) }
