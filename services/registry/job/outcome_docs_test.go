package job_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/golden"
)

// TestOutcomesAreDocumented: docs/outcomes.md shows the table that TestOutcomes proves; -rewrite
// writes it.
func TestOutcomesAreDocumented(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# How jobs end

Made from the table that ` + "`TestOutcomes`" + ` in services/registry/job proves. Each row begins with two workers at work. "failures" is how many the budget allows
(` + "`failures.max`, `--max-restarts`" + `), "also" names what else is set: per (` + "`failures.per`" + `), samestep (` + "`failures.sameStep`" + `),
resets (` + "`elastic.resetLimit`, `--reset-limit`" + `), timeout (` + "`elastic.timeout`, `--elastic-timeout`" + `), hang (` + "`health.hang`, `--hang`" + `).
Terminal stays terminal.

| what happens | recovery | failures | also | the job is then | code | exit code of ` + "`regroup run`" + ` |
|---|---|---|---|---|---|---|
`)
	for _, o := range outcomes {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", o.name, o.recovery, o.failures, o.also, o.state, o.code, exitCode(o.state, o.code))
	}
	golden.Compare(t, "../../../docs/outcomes.md", b.String())
}

func exitCode(s events.JobState, c errcode.Code) string {
	switch {
	case s == events.JobStateSucceeded:
		return "0"
	case s == events.JobStateStopped:
		return "11"
	case s == events.JobStateFailed && c == errcode.Exhausted:
		return "14"
	case s == events.JobStateFailed:
		return "10"
	}
	return ""
}
