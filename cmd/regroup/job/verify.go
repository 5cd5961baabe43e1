package job

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/internal/exitcode"
	"github.com/regroup-io/regroup/services/cluster/statehash"
)

func verify(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify JOB JOB", Short: "Compare the states of two trainings, bit by bit", Args: command.Exactly("JOB", "JOB"),
		Long:    "Compares the hashes that two jobs have reported of their weights, buffers and optimizers, and names the first difference: after which step, of which tensors, and which ranks have computed the steps before it. A GradientAccumulator reports a hash every check_every steps and at the end (regroup docs reproducible). Exits with 15 if they differ.",
		Example: command.Examples("regroup verify mnist-7f3a mnist-91bc", "regroup verify mnist-7f3a mnist-91bc -o json | jq .first_difference.step"),
	}
	form := command.Reading(cmd, command.Text, command.JSON, command.YAML)
	cmd.RunE = env.Connected(func(ctx context.Context, s command.Session) error {
		var all [2]statehash.Hashes
		for i, name := range s.Args {
			v, err := s.Job(ctx, name)
			if err != nil {
				return err
			}
			env.SayStale(s.StaleJobs(ctx, v))
			all[i].Job = v.Job
			err = s.Facts(ctx, v.Job, func(e events.Event) error {
				if b, ok := e.Body.(events.WorkerHashed); ok {
					all[i].Add(b)
				}
				return nil
			})
			if err != nil {
				return err
			}
			if len(all[i].Steps()) == 0 {
				return errcode.Errorf(errcode.NotFound, "%s has reported no hash of its state: a GradientAccumulator does, see regroup docs reproducible", v.Job)
			}
		}
		c := statehash.Compare(all[0], all[1])
		if len(c.Steps) == 0 {
			return errcode.Errorf(errcode.NotFound, "there is no step after which both have a hash: %s has %s, %s has %s; give both the same check_every",
				c.Jobs[0], stepsText(all[0].Steps()), c.Jobs[1], stepsText(all[1].Steps()))
		}
		written, err := form.Write(env.Out, c)
		if !written && err == nil {
			err = sayComparison(env.Out, s.Palette, c)
		}
		if err == nil && !c.Same {
			err = &exitcode.Error{Code: exitcode.Different}
		}
		return err
	})
	return cmd
}

// stepsText formats steps: 100, 200 ... 700.
func stepsText(steps []uint64) string {
	if len(steps) > 3 {
		return fmt.Sprintf("%d, %d ... %d", steps[0], steps[1], steps[len(steps)-1])
	}
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(steps)), ", "), "[]")
}

// differencesShown is how many tensors are named, and how many entries of who has computed what.
const differencesShown = 5

func sayComparison(w io.Writer, p screen.Palette, c statehash.Comparison) error {
	var b strings.Builder
	for i, job := range c.Jobs {
		fmt.Fprintf(&b, "%s  hashes up to step %d", job, *c.Newest[i])
		if again := c.Again[i]; again != nil {
			b.WriteString(", " + english.Plural(*again, "micro-batch") + " dealt again after a loss")
		}
		b.WriteString("\n")
	}
	d := c.First
	if d == nil {
		fmt.Fprintf(&b, "%s after each of %s: %s\n", p.Good("✔ the same"), english.Plural(len(c.Steps), "step"), stepsText(c.Steps))
		fmt.Fprintf(&b, "  after step %d  %s\n", c.Final.Step, c.Final.Hash)
		_, err := io.WriteString(w, b.String())
		return err
	}
	fmt.Fprintf(&b, "%s after step %d", p.Bad("✘ different"), d.Step)
	switch {
	case d.Before == nil:
		b.WriteString(", the first that both have a hash of\n")
	default:
		fmt.Fprintf(&b, ", the same after step %d\n", *d.Before)
	}
	shown := d.Tensors[:min(len(d.Tensors), differencesShown)]
	b.WriteString("  in " + strings.Join(shown, ", "))
	if more := len(d.Tensors) - len(shown); more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	b.WriteString("\n")
	for i, job := range c.Jobs {
		fmt.Fprintf(&b, "  %s  %s\n", job, d.Hashes[i])
		for n, entry := range d.Dealt[i] {
			if n == differencesShown {
				fmt.Fprintf(&b, "    and %d more\n", len(d.Dealt[i])-n)
				break
			}
			b.WriteString("    " + p.Faint("micro-batches of "+statehash.DealtText(entry)) + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
