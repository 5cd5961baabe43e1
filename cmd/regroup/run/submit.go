package run

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/jobflags"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/exitcode"
	"github.com/regroup-io/regroup/internal/specfile"
	"github.com/regroup-io/regroup/services/cluster"
)

// SubmitCommand returns regroup submit.
func SubmitCommand(env command.Env, config *boot.Config) *cobra.Command {
	cmd := &cobra.Command{
		Use: "submit -f job.yaml | [flags] -- CMD ARGS...", Short: "Submit a job, print its id, return",
		Long:    "Submits a job and prints its id once it is accepted. The job is described by a file or by flags; everything that is wrong with it is said at once. The command must be present on every node.",
		Example: command.Examples("regroup submit -f job.yaml", "regroup submit --workers 2:4 -- python train.py", "regroup submit -f - -o json < job.yaml"),
	}
	noQueue := noQueueFlag(cmd)
	job := describe(cmd)
	form := command.Output(cmd, command.Name, command.JSON, command.YAML)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		spec, err := job.read(env, cmd.Name(), form, args)
		if err != nil {
			return err
		}
		c, done, err := env.Client(cmd)
		if err != nil {
			return err
		}
		defer done()
		if *noQueue {
			if err := mustStart(cmd.Context(), c, spec); err != nil {
				return err
			}
		}
		id, err := submit(cmd.Context(), c, *config, spec, env.Say)
		if err != nil {
			return explainRefusal(env, form, err)
		}
		written, err := form.Write(env.Out, map[string]string{"job": string(id)})
		if !written {
			fmt.Fprintln(env.Out, id)
		}
		return err
	}
	return command.WithUsage(cmd)
}

func noQueueFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("no-queue", false, "submit nothing if the job would wait, and exit with 13, as regroup plan does; another job that comes at the same moment may still take its place")
}

// mustStart is an error if a job would wait.
func mustStart(ctx context.Context, c *cluster.Client, job spec.Job) error {
	p, err := c.Forecast(ctx, job)
	if err == nil && (!p.Starts || p.Silent) {
		err = &exitcode.Error{Code: exitcode.NoRoom, Err: errors.New("nothing is submitted: " + p.Text())}
	}
	return err
}

// description is how a command is given a job that goes to a server: by a file, or by flags and
// arguments.
type description struct {
	file  *string
	flags *jobflags.Flags
}

// describe adds the flags of a description to a command.
func describe(cmd *cobra.Command) (d description) {
	d.file = cmd.Flags().StringP("file", "f", "", "job spec in YAML or JSON; - is stdin")
	command.Group(cmd.Flags(), "Job flags", func() { d.flags = jobflags.Add(cmd.Flags()) })
	cmd.Flags().SetInterspersed(false)
	return d
}

// read returns the spec, and says what is to be said about it.
func (d description) read(env command.Env, name string, form *command.Format, args []string) (spec.Job, error) {
	job, err := readSpec(env, *d.file, d.flags, args)
	if err != nil {
		return job, explainRefusal(env, form, err)
	}
	l := d.flags.Launch()
	if l.Standalone {
		return job, errcode.Errorf(errcode.Invalid, "--standalone: %s has no server of its own: use regroup run --standalone", name)
	}
	if err := l.Remote(); err != nil {
		return job, err
	}
	for _, n := range slices.Concat(l.Notes, job.Warnings()) {
		env.Say(n)
	}
	return job, nil
}

// readSpec returns the spec from a file, in which flags take precedence, or from the flags and
// arguments.
func readSpec(env command.Env, file string, flags *jobflags.Flags, args []string) (spec.Job, error) {
	if file == "" {
		return flags.Spec(args)
	}
	if len(args) > 0 {
		return spec.Job{}, errcode.Errorf(errcode.Invalid, "both -f and a command are given: the file has its own")
	}
	job, err := specfile.Read(file, env.In)
	if err != nil {
		return job, err
	}
	return flags.Over(job)
}

// explainRefusal prints the diagnostics of an invalid spec: with the source if it came from a file,
// as a list on Out for programs. The returned error does not repeat them.
func explainRefusal(env command.Env, form *command.Format, err error) error {
	var bad *specfile.Error
	var refusal *errcode.ValidationError
	inFile := errors.As(err, &bad)
	if !inFile && !errors.As(err, &refusal) {
		return err
	}
	if !inFile {
		bad = &specfile.Error{Findings: refusal.Fields}
	}
	written := false
	if !form.Selects() { // what is selected is of something else
		if written, err = form.Write(env.Out, bad.Findings); err != nil {
			return err
		}
	}
	switch {
	case written:
	case inFile:
		bad.Print(env.Err)
	default:
		for _, f := range refusal.Fields {
			env.Say(f.String())
		}
	}
	return &exitcode.Error{Code: exitcode.Usage}
}
