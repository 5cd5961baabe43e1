package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/services/cluster"
)

// Session is the state of a connected command.
type Session struct {
	*cluster.Client
	Palette screen.Palette // for Out
	Args    []string
}

// Connected returns the body of a command: it connects, calls do, and closes the connection.
func (e Env) Connected(do func(ctx context.Context, s Session) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, done, err := e.Client(cmd)
		if err != nil {
			return err
		}
		defer done()
		return do(cmd.Context(), Session{Client: c, Palette: e.Palette(cmd, e.IsTerminal), Args: args})
	}
}

// SayStale says in a line for each server how old what it has is, if its services do not answer.
func (e Env) SayStale(all []cluster.Stale) {
	for _, s := range all {
		e.Say(e.StaleText(s))
	}
}

// StaleText is such a line.
func (e Env) StaleText(s cluster.Stale) string {
	text := s.String() + ": state as they left it"
	if !s.AsOf.IsZero() {
		text = fmt.Sprintf("%s: state as of %s, %s ago", s, s.AsOf.In(e.Now().Location()).Format(time.DateTime), e.Age(s.AsOf))
	}
	if s.Ended {
		text += "; their process has ended, and regroup up goes on with the jobs"
	}
	return text
}

const completeWithin = 2 * time.Second

// Completes completes the first argument with the results of words, each with its description.
// There are none if the system is unreachable.
func (e Env) Completes(words func(context.Context, *cluster.Client) ([]cobra.Completion, error)) cobra.CompletionFunc {
	complete := e.CompletesFlag(func(ctx context.Context, c *cluster.Client, _ []string) ([]cobra.Completion, error) {
		return words(ctx, c)
	})
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, begun)
	}
}

// CompletesFlag is Completes for the value of a flag, which may depend on the arguments before it.
func (e Env) CompletesFlag(words func(context.Context, *cluster.Client, []string) ([]cobra.Completion, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()
		servers, done, err := e.Connect(ctx, completeWithin, func(string) {})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		defer done()
		found, err := words(ctx, cluster.Of(e.Source, servers...), args)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}
