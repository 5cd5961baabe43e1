// Package report writes sections of Markdown documents that several programs share.
package report

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Reliability is the head of docs/reliability.md.
const Reliability = `# Reliability

Written by ` + "`make e2e SUITE=reliability`" + `: what real processes did under real faults, on hosts in network namespaces of one machine. A job succeeded
means that no sample is missing and none is repeated, by the ledger that it committed and by the records that its workers
kept outside of Regroup (` + "`e2e/record`" + `). "Without a step" is the longest time in which the job made no step; a step made again was lost to the fault.
`

// Section replaces the text under the heading "## title" of a document; other sections stay. A new
// document begins with head.
func Section(file, head, title, text string) error {
	b, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	doc := string(b)
	if doc == "" {
		doc = head
	}
	const heading = "\n## "
	all := strings.Split("\n"+doc, heading) // the first one is the head
	at := slices.IndexFunc(all, func(s string) bool { return strings.HasPrefix(s, title+"\n") })
	if at < 0 {
		at, all = len(all), append(all, "")
	}
	all[at] = title + "\n\n" + text
	for i, s := range all {
		all[i] = strings.TrimSpace(s)
	}
	doc = strings.TrimLeft(strings.Join(all, "\n"+heading), "\n") + "\n"
	return os.WriteFile(file, []byte(doc), 0o644)
}

// Machine describes the time and the machine of a measurement.
func Machine() string {
	return fmt.Sprintf("%s, %s, %d cores, Linux %s, %s", time.Now().UTC().Format("2006-01-02"), cpu(), runtime.NumCPU(), kernel(), runtime.Version())
}

// Quantile returns a quantile of sorted or unsorted values; zero if there are none.
func Quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	return d[min(int(q*float64(len(d))), len(d)-1)]
}

func cpu() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				return strings.TrimSpace(v)
			}
		}
	}
	return runtime.GOARCH
}

func kernel() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

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
