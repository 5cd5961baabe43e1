package run

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/internal/exitcode"
)

// PlanCommand returns regroup plan.
func PlanCommand(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "plan -f job.yaml | [flags] -- CMD ARGS...", Short: "Say whether a job would start now, or what it would wait for",
		Long:    "Says whether a job would start at once and where, or for what it would wait: for which slots, behind how many jobs, and which job's end would let it start. The scheduler's own rules are run ahead, on the nodes and jobs as they are; nothing is submitted, and nothing is kept for the job. The exit code is 0 if it would start at once, and 13 if it would wait. The description of the job is checked as by regroup submit.",
		Example: command.Examples("regroup plan -f job.yaml", "regroup plan --workers 8 --gpu H100 -- python train.py", "regroup plan -f job.yaml -o json | jq .starts"),
	}
	given := describe(cmd)
	form := command.Reading(cmd, command.Text, command.JSON, command.YAML)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		job, err := given.read(env, cmd.Name(), form, args)
		if err != nil {
			return err
		}
		c, done, err := env.Client(cmd)
		if err != nil {
			return err
		}
		defer done()
		p, err := c.Forecast(cmd.Context(), job)
		if err != nil {
			return err
		}
		written, err := form.Write(env.Out, p)
		if !written {
			_, err = fmt.Fprintln(env.Out, p.Text())
		}
		if err == nil && !p.Starts { // it was printed why
			err = &exitcode.Error{Code: exitcode.NoRoom}
		}
		return err
	}
	return command.WithUsage(cmd)
}
