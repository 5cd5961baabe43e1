package job

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/internal/escape"
	"github.com/regroup-io/regroup/services/cluster/view"
)

func list(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"jobs", "ps"}, Short: "List jobs", Args: command.Exactly(),
		Long:    "Lists jobs, the newest first. WORKERS is how many train now, of how many are wanted. The table has at most --limit rows, and those that have ended are left out first; the other forms have all jobs unless --limit is given.",
		Example: command.Examples("regroup ls", "regroup ls --running -o wide", "regroup ls -o json | jq '.[].job'"),
	}
	running := cmd.Flags().BoolP("running", "r", false, "only jobs that have not ended")
	limit := cmd.Flags().Int("limit", newest, "at most so many jobs; 0 = all")
	every := cmd.Flags().BoolP("all", "a", false, "all jobs, as --limit 0")
	form := command.Reading(cmd, command.Table, command.Wide, command.JSON, command.YAML, command.Name)
	cmd.RunE = env.Connected(func(ctx context.Context, s command.Session) error {
		all, err := s.Jobs(ctx)
		if err != nil {
			return err
		}
		views := make([]events.JobView, 0, len(all))
		for _, v := range all {
			if !*running || !v.State.Terminal() {
				views = append(views, v)
			}
		}
		found := len(views)
		if tabular := form.Is(command.Table) || form.Is(command.Wide); !*every && *limit > 0 && (tabular || cmd.Flags().Changed("limit")) {
			views = limited(views, *limit)
		}
		if left := found - len(views); left > 0 {
			defer fmt.Fprintf(env.Err, "%s left out: regroup ls --all\n", english.Plural(left, "older job"))
		}
		live := make([]*events.JobView, len(views))
		for i := range views {
			live[i] = &views[i]
		}
		s.Live(ctx, live...)
		env.SayStale(s.StaleJobs(ctx, views...))
		queued(ctx, s, views)
		header := []string{"JOB", "STATE", "WORKERS", "GEN", "STEP", "INCIDENTS", "AGE"}
		if form.Is(command.Wide) {
			header = append(header, "RECOVERY", "BY", "COMMAND")
		}
		return command.Print(env, cmd, form, view.Jobs(views), command.Columns[view.Job]{
			Name: func(v view.Job) string { return string(v.Job) }, None: "no jobs; start one: regroup run -- CMD", Header: header,
			Row: func(p screen.Palette, v view.Job) []string { return row(env, p, v.JobView, form.Is(command.Wide)) },
		})
	})
	return cmd
}

// queued replaces the reasons of jobs in the queue by what is before them there, if that can be
// read.
func queued(ctx context.Context, s command.Session, views []events.JobView) {
	if !slices.ContainsFunc(views, func(v events.JobView) bool { return v.State == events.JobStateWaiting }) {
		return
	}
	pool, err := s.Placement(ctx)
	for i, v := range views {
		if err == nil {
			views[i].Reason = view.Queued(v, v.Reason, pool)
		}
	}
}

// newest is the default number of jobs in a table.
const newest = 20

// limited returns n of the jobs in their order: those that have not ended, and the newest of the
// others.
func limited(views []events.JobView, n int) []events.JobView {
	room := max(0, n-len(slices.DeleteFunc(slices.Clone(views), func(v events.JobView) bool { return v.State.Terminal() })))
	kept := make([]events.JobView, 0, n)
	for _, v := range views {
		switch {
		case len(kept) == n:
			return kept
		case !v.State.Terminal():
			kept = append(kept, v)
		case room > 0:
			kept = append(kept, v)
			room--
		}
	}
	return kept
}

func row(env command.Env, p screen.Palette, v events.JobView, wide bool) []string {
	r := screen.JobCells(p, v, env.Now())
	if wide {
		r = append(r, string(v.Spec.Recovery), v.By, escape.Shell(v.Spec.Command))
	}
	if reason := screen.JobReason(p, v); reason != "" {
		if !wide {
			reason = screen.Fit(reason, reasonWidth)
		}
		r = append(r, reason)
	}
	return r
}

// reasonWidth is how much of a reason a table has that is not wide: the first sentence of most.
const reasonWidth = 100
