package job

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
)

func list(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"jobs", "ps"}, Short: "List jobs", Args: command.Exactly(),
		Long: command.Help("Lists every job, the newest first. WORKERS is how many train now, of how many are wanted.",
			"regroup ls", "regroup ls -o wide", "regroup ls -o json | jq '.[].job'"),
	}
	running := cmd.Flags().BoolP("running", "r", false, "only jobs that have not ended")
	form := command.Output(cmd, command.Table, command.Wide, command.JSON, command.YAML, command.Name)
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
		if written, err := form.Write(env.Out, listed(views)); written {
			return err
		}
		if form.Is(command.Name) {
			for _, v := range views {
				fmt.Fprintln(env.Out, v.Job)
			}
			return nil
		}
		if len(views) == 0 {
			fmt.Fprintln(env.Err, "no jobs; start one: regroup run -- CMD")
			return nil
		}
		header := []string{"JOB", "STATE", "WORKERS", "GEN", "STEP", "INCIDENTS", "AGE"}
		if form.Is(command.Wide) {
			header = append(header, "RECOVERY", "BY", "COMMAND")
		}
		rows := make([][]string, 0, len(views))
		for _, v := range views {
			rows = append(rows, row(env, s.Palette, v, form.Is(command.Wide)))
		}
		return screen.Table(env.Out, s.Palette, header, rows)
	})
	return cmd
}

func row(env command.Env, p screen.Palette, v events.JobView, wide bool) []string {
	gen, step := "-", "-"
	if v.Generation > 0 {
		gen = fmt.Sprint(uint64(v.Generation))
	}
	if v.Step > 0 {
		step = fmt.Sprint(v.Step)
	}
	incidents := len(v.Incidents)
	if v.Open != nil {
		incidents++
	}
	r := []string{
		string(v.Job), p.State(string(v.State)), fmt.Sprintf("%d/%s", training(v), screen.WorkersText(v.Spec.Workers)), gen, step,
		fmt.Sprint(incidents), env.Age(v.Submitted),
	}
	if wide {
		r = append(r, string(v.Spec.Recovery), v.By, fmt.Sprintf("%q", v.Spec.Command))
	}
	if v.Reason != "" && v.State != events.JobIsRunning && v.State != events.JobHasSucceed {
		r = append(r, p.Faint(v.Reason))
	}
	return r
}

// training counts the members of the newest generation, none once the job has ended.
func training(v events.JobView) int {
	if v.State.Terminal() || len(v.Generations) == 0 {
		return 0
	}
	return v.Generations[len(v.Generations)-1].World
}
