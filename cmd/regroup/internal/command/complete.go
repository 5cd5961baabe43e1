package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/client"
)

// completeWithin is how long a shell waits for words.
const completeWithin = 2 * time.Second

// Completes lets the shell complete the first argument with what words finds, each with its
// description. Where the system cannot be reached there is nothing to complete.
func (e Env) Completes(words func(context.Context, *client.Client) ([]cobra.Completion, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()
		servers, done, err := e.Connect(ctx, completeWithin, func(string) {})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		defer done()
		found, err := words(ctx, client.Of(e.Source, servers...))
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}
