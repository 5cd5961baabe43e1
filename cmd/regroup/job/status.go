package job

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/services/cluster/view"
)

func status(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status [JOB]", Short: "Show one job, its workers, its incidents", Args: command.AtMost("JOB"),
		Long:    "Shows a job: its workers by rank, its incidents with their phases, and the first error of a job that failed. The beginning of a job's id is enough if no other begins so. With -o summary it prints the object that run -o json prints. Without a name it is about the job that was submitted last.",
		Example: command.Examples("regroup status mnist-7f3a", "regroup status mnist", "regroup status mnist -o summary | jq .samples"),
	}
	const asSummary = "summary"
	form := command.Reading(cmd, command.Table, command.Wide, command.JSON, command.YAML, command.Name, asSummary)
	cmd.RunE = onJob(env, func(ctx context.Context, s command.Session, v events.JobView) error {
		live := s.Live(ctx, &v)
		if form.Is(asSummary) {
			if err := form.Set(command.JSON); err != nil {
				return err
			}
			_, err := form.Write(env.Out, view.Summarize(v, env.Now()))
			return err
		}
		if written, err := form.Write(env.Out, view.JobOf(v)); written {
			return err
		}
		if form.Is(command.Name) {
			fmt.Fprintln(env.Out, v.Job)
			return nil
		}
		var nodes []events.NodeView
		if v.Slowest != nil || v.Spec.Processes.Spares > 0 && !v.State.Terminal() {
			if known, err := s.Nodes(ctx); err == nil { // they have figures of GPUs, and how many spares are ready
				nodes = known
			}
		}
		return show(env, s.Palette, v, form.Is(command.Wide), live, nodes)
	})
	return cmd
}

// show writes a job; live: a registry has answered how far it is; nodes may be nil.
func show(env command.Env, p screen.Palette, v events.JobView, wide, live bool, nodes []events.NodeView) error {
	fmt.Fprintf(env.Out, "%s  %s  generation %d  %s (%d–%d)%s  %s  submitted by %s %s ago\n", p.Head(string(v.Job)), p.State(string(v.State)),
		v.Generation, members(v), v.Spec.Workers.Min, v.Spec.Workers.Max, v.Spec.GPU.With(), step(env, v, live), v.By, env.Age(v.Submitted))
	if v.Reason != "" {
		fmt.Fprintln(env.Out, v.Reason)
	}
	for _, line := range []string{reported(v), view.MetricsText(v, env.Now()), failureBudget(v, env.Now()), samples(v), view.RedundancyText(v, env.Now()), slowest(v, nodes), spares(v, nodes)} {
		if line != "" {
			fmt.Fprintln(env.Out, line)
		}
	}
	if len(v.Workers) > 0 {
		if err := workers(env, p, v, wide); err != nil {
			return err
		}
	}
	if v.OpenIncident != nil || len(v.Incidents) > 0 {
		fmt.Fprintln(env.Out, p.Head("INCIDENTS"))
	}
	if v.OpenIncident != nil {
		fmt.Fprintf(env.Out, "#%d %s · %s\n", v.OpenIncident.Incident, view.CauseText(v.OpenIncident.Cause), p.Warn("open"))
	}
	for _, i := range slices.Backward(v.Incidents) {
		fmt.Fprintln(env.Out, view.IncidentText(i))
	}
	if v.State == events.JobStateFailed && v.FirstError != nil {
		fmt.Fprint(env.Out, screen.RootCause(p, v.Job, *v.FirstError))
	}
	return nil
}

// members says how many train or, once the job has ended, did last.
func members(v events.JobView) string {
	switch n := view.LastWorld(v); {
	case !v.State.Terminal():
		return fmt.Sprintf("world %d", view.Members(v))
	case n > 0:
		return fmt.Sprintf("last world %d", n)
	}
	return "no world"
}

// step is the newest known step and, until the job ends, its age.
func step(env command.Env, v events.JobView, live bool) string {
	switch {
	case v.Step == 0:
		return "no step known"
	case !live && !v.StepAt.IsZero(): // it may have been shown further before
		return fmt.Sprintf("at least step %d, stored %s ago: no registry answers", v.Step, env.Age(v.StepAt))
	case v.State != events.JobStateRunning || v.StepAt.IsZero():
		return fmt.Sprintf("step %d", v.Step)
	}
	return fmt.Sprintf("step %d, %s ago", v.Step, env.Age(v.StepAt))
}

func workers(env command.Env, p screen.Palette, v events.JobView, wide bool) error {
	header := []string{"RANK", "NODE", "SLOT", "PID", "STATE", "GEN", "ATTEMPT"}
	if wide {
		header = append(header, "INCARNATION")
	}
	all := slices.Clone(v.Workers)
	// Workers without a rank come last.
	slices.SortStableFunc(all, func(a, b tables.WorkerView) int {
		return cmp.Or(cmp.Compare(uint(a.Rank), uint(b.Rank)), cmp.Compare(a.Place.Node, b.Place.Node), cmp.Compare(a.Place.Slot, b.Place.Slot))
	})
	return screen.TableOf(env.Out, p, header, all, func(w tables.WorkerView) []string {
		rank := "-"
		if w.Rank >= 0 {
			rank = p.Rank(w.Rank, fmt.Sprint(w.Rank))
		}
		gen := "-"
		if w.WorkerRef.Generation > 0 {
			gen = fmt.Sprint(uint64(w.WorkerRef.Generation))
		}
		r := []string{
			rank, string(w.Place.Node), fmt.Sprint(int(w.Place.Slot)), fmt.Sprint(w.PID), p.State(string(w.State)),
			gen, fmt.Sprint(w.Attempt),
		}
		if wide {
			r = append(r, string(w.Incarnation))
		}
		if detail := w.Detail; detail != "" {
			if w.State == tables.WorkerStateStopped && detail != events.StillRunning {
				detail += " (asked to stop)" // as the fact says it
			}
			r = append(r, p.Faint(detail))
		}
		return r
	})
}

func why(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain [JOB]", Aliases: []string{"why"}, Short: "Say what a job is doing, and what it waits for", Args: command.AtMost("JOB"),
		Long:    "Says in one sentence with numbers what the job is doing, or what it waits for and how long it will: slots, nodes, workers that have not joined, the last call, the failure budget, services of which none answers. Without a name it is about the job that was submitted last.",
		Example: command.Examples("regroup explain mnist-7f3a", "regroup explain mnist", "regroup explain mnist -o json | jq .missing"),
	}
	form := command.Reading(cmd, command.Text, command.JSON, command.YAML)
	cmd.RunE = chosen(env, theLast, func(ctx context.Context, s command.Session, v events.JobView) error {
		s.Live(ctx, &v)
		seen := view.Seen{Job: v, Now: env.Now(), Silent: s.Silent(ctx), ServerEnded: s.ServerEnded(v.Job)}
		var err error
		if seen.Round, err = s.Round(ctx, v.Job); err != nil {
			return err
		}
		pool, err := s.Placement(ctx)
		if err != nil {
			return err
		}
		seen.Placement, seen.Pool = pool.Jobs[v.Job], pool
		if seen.Nodes, err = s.Nodes(ctx); err != nil {
			return err
		}
		e := view.Explain(seen)
		if written, err := form.Write(env.Out, e); written {
			return err
		}
		_, err = fmt.Fprintln(env.Out, e.Sentence)
		return err
	})
	return cmd
}

// reported describes what the members of the newest generation have reported, or "". No member is
// ready in a job that has ended.
func reported(v events.JobView) string {
	if len(v.Generations) == 0 {
		return ""
	}
	g := v.Generations[len(v.Generations)-1]
	if v.State.Terminal() {
		return fmt.Sprintf("%s: of %s %d success, %d failure", g.Generation, english.Plural(g.World, "member"), g.Reported.Success, g.Reported.Failure)
	}
	return fmt.Sprintf("%s: %d of %s ready, %d success, %d failure", g.Generation, g.Reported.Ready, english.Plural(g.World, "member"),
		g.Reported.Success, g.Reported.Failure)
}

// samples describes what the ledger proves, or "" if the program has none.
func samples(v events.JobView) string {
	s := view.SamplesOf(v.Ledger)
	if s == nil {
		return ""
	}
	text := fmt.Sprintf("samples: %s of %d done, missing %d, repeated %d", english.Plural(s.Epochs, "epoch"), s.PerEpoch, s.Missing, s.Repeated)
	if s.Unproven {
		text += " by their number; which ones is not checked in epochs of this size"
	}
	return text
}

// slowest names the worker that the others wait for, or is "".
func slowest(v events.JobView, nodes []events.NodeView) string {
	if v.Slowest == nil {
		return ""
	}
	where, had := "", ""
	for _, w := range v.Workers {
		if w.Rank == v.Slowest.Rank {
			where = " on " + w.Place.String()
			if had = figuresOf(w.Place, nodes); had != "" {
				had = "; " + had
			}
		}
	}
	return fmt.Sprintf("slowest: r%d%s, the others wait for it %.0f %% of the time%s", v.Slowest.Rank, where, 100*v.Slowest.Share, had)
}

// spares says how many of a job's spares are ready, or is "".
func spares(v events.JobView, nodes []events.NodeView) string {
	text := view.SparesText(v.Job, nodes)
	if v.State.Terminal() || text == "" {
		return ""
	}
	return "spares: " + text
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
	counted := v.FailuresWithin(now)
	text := fmt.Sprintf("%d of %s %s", counted, english.Plural(*f.Max, "failure"), window)
	if counted > *f.Max {
		text = fmt.Sprintf("%s %s, %d allowed", english.Plural(counted, "failure"), window, *f.Max)
	}
	if same, step := events.SameStep(v.CountedFailures); same > 0 {
		where := fmt.Sprintf("at step %d", step)
		if step == 0 {
			where = "before a step to return to"
		}
		text += fmt.Sprintf(", %d of %d %s", same, f.SameStep, where)
	}
	return text + "; last: " + view.CountedFailureText(v.CountedFailures[len(v.CountedFailures)-1])
}
