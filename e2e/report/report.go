// Package report writes sections of Markdown documents that several programs share.
package report

import (
	"errors"
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
	heading := "## " + title + "\n"
	text = heading + "\n" + strings.TrimSpace(text) + "\n"
	at := 0
	if !strings.HasPrefix(doc, heading) {
		if at = strings.Index(doc, "\n"+heading); at >= 0 {
			at++
		}
	}
	if at < 0 {
		doc = strings.TrimRight(doc, "\n") + "\n\n" + text
	} else {
		rest := ""
		if end := strings.Index(doc[at+len(heading):], "\n## "); end >= 0 {
			rest = "\n" + doc[at+len(heading)+end+1:]
		}
		doc = doc[:at] + text + rest
	}
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
