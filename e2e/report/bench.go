package report

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

// Suite is a suite of benchmarks: it adds its flags to a set, and returns what measures once they
// are parsed.
type Suite func(f *flag.FlagSet) func(ctx context.Context, r *Report) error

// Report is where a suite writes what it has measured.
type Report struct {
	Suite string // its name
	Bin   string // absolute path of the folder of the binaries
	Out   string // Markdown document; empty = standard output
}

const benchmarks = `# Benchmarks

Written by ` + "`make bench`" + `. Wall time seen from outside, in milliseconds. "first step" means that the fact of a worker's first good
step has arrived at the measuring process. Other programs may share the machine: read medians.
`

// Section writes a section of the document, under the suite's name, the date and the machine.
func (r *Report) Section(title, text string) error {
	text = fmt.Sprintf("Written by `make bench SUITE=%s`. Measured on %s.\n\n%s", r.Suite, Machine(), strings.TrimLeft(text, "\n"))
	if r.Out == "" {
		fmt.Printf("## %s\n\n%s\n", title, text)
		return nil
	}
	return Section(r.Out, benchmarks, title, text)
}

// Say prints how far the measurement is.
func (r *Report) Say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, r.Suite+": "+format+"\n", args...)
}

// Table is a table of figures, each beside its goal.
type Table struct{ rows strings.Builder }

// Times adds a row of times, in milliseconds; none if there are no times.
func (t *Table) Times(what string, d []time.Duration, goal string) {
	if len(d) == 0 {
		return
	}
	fmt.Fprintf(&t.rows, "| %s | %d |", what, len(d))
	for _, q := range []float64{0, 0.5, 0.9, 0.99, 1} {
		fmt.Fprintf(&t.rows, " %.1f |", MS(Quantile(d, q)))
	}
	fmt.Fprintf(&t.rows, " %s |\n", goal)
}

// Figure adds a row with one number, whose unit is in what it is.
func (t *Table) Figure(what string, value float64, goal string) {
	fmt.Fprintf(&t.rows, "| %s | 1 | | %.1f | | | | %s |\n", what, value, goal)
}

// String returns the table in Markdown.
func (t *Table) String() string {
	return "| what | trials | min | median | p90 | p99 | max | goal |\n|---|---|---|---|---|---|---|---|\n" + t.rows.String()
}

// MS returns a time in milliseconds.
func MS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
