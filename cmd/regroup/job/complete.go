package job

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/services/cluster"
)

// completeFlags completes the flags of a command that select among the workers of a job, with what
// the job has: that which is named, else the last one.
func completeFlags(cmd *cobra.Command, env command.Env) {
	for flag, words := range map[string]func(events.JobView) []cobra.Completion{"rank": ranks, "node": nodes, "gen": generations} {
		_ = cmd.RegisterFlagCompletionFunc(flag, env.CompletesFlag(func(ctx context.Context, c *cluster.Client, args []string) ([]cobra.Completion, error) {
			if len(args) == 0 {
				v, err := last(ctx, c)
				return words(v), err
			}
			v, err := c.Job(ctx, args[0])
			return words(v), err
		})) // fails only when called twice
	}
}

// completeCondition completes what a job is waited for: states, and numbers that every job has or
// that this one reports.
func completeCondition(env command.Env) cobra.CompletionFunc {
	reported := env.CompletesFlag(func(ctx context.Context, c *cluster.Client, args []string) ([]cobra.Completion, error) {
		v, err := last(ctx, c)
		if len(args) > 0 {
			v, err = c.Job(ctx, args[0])
		}
		var words []cobra.Completion
		for _, name := range slices.Sorted(maps.Keys(v.Reported)) {
			words = append(words, name+"<=", name+">=")
		}
		return words, err
	})
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		more, _ := reported(cmd, args, begun) // without a server those of every job remain
		words := append([]cobra.Completion{"running", "finishing", ofStep + ">=", ofWorkers + ">="}, more...)
		words = slices.DeleteFunc(words, func(w cobra.Completion) bool { return !strings.HasPrefix(w, begun) })
		if !slices.ContainsFunc(words, func(w cobra.Completion) bool { return !strings.HasSuffix(w, "=") }) {
			return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace // the number follows
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// ranks are those of the newest generation, with their places.
func ranks(v events.JobView) (words []cobra.Completion) {
	if len(v.Generations) == 0 {
		return nil
	}
	for _, m := range v.Generations[len(v.Generations)-1].Members {
		words = append(words, cobra.CompletionWithDesc(fmt.Sprint(m.Rank), m.Place.String()))
	}
	return words
}

// nodes are those of all generations.
func nodes(v events.JobView) (words []cobra.Completion) {
	for _, g := range v.Generations {
		for _, m := range g.Members {
			if name := cobra.Completion(m.Place.Node); !slices.Contains(words, name) {
				words = append(words, name)
			}
		}
	}
	slices.Sort(words)
	return words
}

func generations(v events.JobView) (words []cobra.Completion) {
	for _, g := range slices.Backward(v.Generations) {
		words = append(words, cobra.CompletionWithDesc(strconv.FormatUint(uint64(g.Generation), 10), fmt.Sprintf("%s, %s", g.Cause.Kind, english.Plural(g.World, "worker"))))
	}
	return words
}
