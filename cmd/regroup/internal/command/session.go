package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/client"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
)

// Session is the state of a connected command.
type Session struct {
	*client.Client
	Palette screen.Palette // for Out
	Args    []string
}

// Connected returns the body of a command: it connects, calls do, and closes the connection.
func (e Env) Connected(do func(ctx context.Context, s Session) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		p, err := e.Palette(cmd)
		if err != nil {
			return err
		}
		c, done, err := e.Client(cmd)
		if err != nil {
			return err
		}
		defer done()
		return do(cmd.Context(), Session{Client: c, Palette: p, Args: args})
	}
}
