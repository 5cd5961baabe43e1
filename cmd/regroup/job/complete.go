package job

import (
	"context"
	"fmt"
	"slices"
	"strconv"

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
