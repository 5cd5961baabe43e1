package view_test

import (
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// TestPatterns: what stands for no fact is refused, with the nearest that does.
func TestPatterns(t *testing.T) {
	const families = "they begin with job, placement, round, worker, incident or node"
	for pattern, want := range map[string]string{
		"job.failed": "", "incident.*": "", "*": "", "*.exited": "", "node.[jl]*": "", "dev.regroup.job.failed.v1": "", "job.re*": "",
		"job.faild":                `type: "job.faild" is the type of no fact (did you mean "job.failed"?)`,
		"incidents.*":              `type: "incidents.*" is the type of no fact (did you mean "incident.*"?)`,
		"dev.regroup.job.faild.v1": `type: "dev.regroup.job.faild.v1" is the type of no fact (did you mean "dev.regroup.job.failed.v1"?)`,
		"job.submit":               `type: "job.submit" is the type of no fact (did you mean "job.submitted"?)`, // a command
		"alert.*":                  `type: "alert.*" is the type of no fact (` + families + `)`,
		"":                         `type: "" is no pattern: write worker.exited or incident.*`,
		"job.[":                    `type: "job.[" is no pattern: write worker.exited or incident.*`,
	} {
		f := view.CheckPattern("type", pattern)
		if f == nil && want != "" || f != nil && f.String() != want {
			t.Errorf("%q: %v, want %s", pattern, f, want)
		}
	}
	if f := view.CheckPattern("type", strings.Repeat("x", 1<<20)); f == nil || len(f.String()) > 1000 {
		t.Errorf("a long one: %v", f)
	}
	for pattern, want := range map[string]bool{"job.*": true, "job.failed": true, "*": true, "dev.regroup.job.failed.v1": true, "dev.regroup.job.*": false, "job.fail": false, "[": false, "": false} {
		if got := view.Matches(pattern, events.JobFailed{}.Type()); got != want {
			t.Errorf("%q: %t", pattern, got)
		}
	}
}
