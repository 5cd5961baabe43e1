package job

import (
	"fmt"
	"strings"
	"time"

	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/cmd/regroup/internal/summary"
	"github.com/regroup-io/regroup/events"
)

// reported describes what the members of the newest generation have reported, or "". No member is
// ready in a job that has ended.
func reported(v events.JobView) string {
	if len(v.Generations) == 0 {
		return ""
	}
	g := v.Generations[len(v.Generations)-1]
	if v.State.Terminal() {
		return fmt.Sprintf("%s: of %s %d success, %d failure", g.Generation, screen.Plural(g.World, "member"), g.Reported.Success, g.Reported.Failure)
	}
	return fmt.Sprintf("%s: %d of %s ready, %d success, %d failure", g.Generation, g.Reported.Ready, screen.Plural(g.World, "member"),
		g.Reported.Success, g.Reported.Failure)
}

// samples describes what the ledger proves, or "" if the program has none.
func samples(v events.JobView) string {
	s := summary.Count(v.Ledger)
	if s == nil {
		return ""
	}
	text := fmt.Sprintf("samples: %s of %d done, missing %d, repeated %d", screen.Plural(s.Epochs, "epoch"), s.PerEpoch, s.Missing, s.Repeated)
	if s.Unproven {
		text += " by their number; which ones is not checked in epochs of this size"
	}
	return text
}

// slowest names the worker that the others wait for, or is "".
func slowest(v events.JobView) string {
	if v.Slowest == nil {
		return ""
	}
	where := ""
	for _, w := range v.Workers {
		if w.Rank == v.Slowest.Rank {
			where = " on " + w.Place.String()
		}
	}
	return fmt.Sprintf("slowest: r%d%s, the others wait for it %.0f %% of the time", v.Slowest.Rank, where, 100*v.Slowest.Share)
}

// failureBudget describes how much of the failure budget is used up: 2 of 20 failures this hour, 1
// of 3 at step 4612. "" = no failure was counted.
func failureBudget(v events.JobView, now time.Time) string {
	f := v.Spec.Failures
	if f.Max == nil || len(v.CountedFailures) == 0 {
		return ""
	}
	window := "within " + strings.TrimSuffix(strings.TrimSuffix(f.Per.D().String(), "0s"), "0m")
	if f.Per.D() == time.Hour {
		window = "this hour"
	}
	text := fmt.Sprintf("%d of %s %s", v.FailuresWithin(now), screen.Plural(*f.Max, "failure"), window)
	if same, step := events.SameStep(v.CountedFailures); same > 0 {
		where := fmt.Sprintf("at step %d", step)
		if step == 0 {
			where = "before a step to return to"
		}
		text += fmt.Sprintf(", %d of %d %s", same, f.SameStep, where)
	}
	return text + "; last: " + screen.CountedFailureText(v.CountedFailures[len(v.CountedFailures)-1])
}
