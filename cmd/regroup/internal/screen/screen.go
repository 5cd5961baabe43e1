// Package screen formats terminal output: colours, tables, log prefixes, the status line, the
// history of a job in one line per event, the final summary, and the timeline. It is pure: it reads
// no clock and does no I/O but writing its result.
package screen

import (
	"io"
	"strings"
	"unicode/utf8"
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
			line.WriteString(cell)
			if i < len(r)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-Width(cell)+2))
			}
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

// Width is the number of columns of a text without colour. Every character counts as one.
func Width(s string) int {
	if !strings.Contains(s, "\x1b[") {
		return utf8.RuneCountInString(s)
	}
	n := 0
	for len(s) > 0 {
		if rest, ok := strings.CutPrefix(s, "\x1b["); ok {
			_, s, _ = strings.Cut(rest, "m")
			continue
		}
		_, size := utf8.DecodeRuneInString(s)
		n, s = n+1, s[size:]
	}
	return n
}
