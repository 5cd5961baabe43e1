// Package command is what all sub-commands share: where they read and write, how they reach the
// system, the flags that mean the same everywhere, and how a mistyped word is answered.
package command

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/cmd/regroup/internal/client"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/cmd/regroup/internal/visible"
	"github.com/regroup-io/regroup/events"
)

// Env is the world of a command. Data goes to Out, talk to Err. Every field but In must be set.
type Env struct {
	// Connect reaches the servers within a time and tells what it waits for; the function it
	// returns ends the connections.
	Connect       func(ctx context.Context, within time.Duration, say func(string)) ([]client.Server, func(), error)
	In            io.Reader
	Out, Err      io.Writer
	IsTerminal    bool // Out is one
	ErrIsTerminal bool // Err is one
	Width         int  // columns of the terminal; 0 = 100
	Getenv        func(string) string
	Now           func() time.Time // its location is that in which times are shown
	Source        string           // CloudEvents source of commands
}

// Names of the global flags.
const (
	flagColor   = "color"
	flagTimeout = "timeout"
)

// GlobalFlags adds the flags that mean the same in every command.
func GlobalFlags(fs *pflag.FlagSet) {
	fs.String(flagColor, screen.Auto, "auto, always or never; auto heeds NO_COLOR and CLICOLOR_FORCE (REGROUP_COLOR)")
	fs.Duration(flagTimeout, client.DefaultAnswerWithin, "how long to wait for a server, and for the answer to a command (REGROUP_TIMEOUT)")
}

// Client connects and makes a client; done ends the connection.
func (e Env) Client(cmd *cobra.Command) (c *client.Client, done func(), err error) {
	within, err := Timeout(cmd)
	if err != nil {
		return nil, nil, err
	}
	servers, done, err := e.Connect(cmd.Context(), within, e.Say)
	if err != nil {
		return nil, nil, err
	}
	c = client.Of(e.Source, servers...)
	c.AnswerWithin, c.Waits = within, e.Say
	c.Now, c.Trace = e.Now, client.Trace(e.Getenv)
	c.Exact = exact(cmd, e.IsTerminal)
	c.Warn = func(err error) { fmt.Fprintln(e.Err, "regroup: warning:", visible.Text(err.Error())) }
	return c, done, nil
}

// Say tells the user something beside the output.
func (e Env) Say(text string) { fmt.Fprintln(e.Err, "regroup:", visible.Text(text)) }

// Timeout is what --timeout says, or its default.
func Timeout(cmd *cobra.Command) (time.Duration, error) {
	f := cmd.Flag(flagTimeout)
	if f == nil {
		return client.DefaultAnswerWithin, nil
	}
	d, err := time.ParseDuration(f.Value.String())
	if own := f != cmd.Root().PersistentFlags().Lookup(flagTimeout); own && d == 0 { // of the command itself: as long as it takes, once it is connected
		return client.DefaultAnswerWithin, nil
	}
	if err != nil || d <= 0 {
		return 0, events.Errorf(events.Invalid, "--timeout is %s, must be more than 0", f.Value)
	}
	return d, nil
}

// Within returns how long a process that serves waits for its server: --timeout where it is given,
// else what its configuration says.
func Within(cmd *cobra.Command, configured time.Duration) (time.Duration, error) {
	if f := cmd.Flag(flagTimeout); f == nil || !f.Changed {
		return configured, nil
	}
	return Timeout(cmd)
}

// exact tells whether a command writes for a program, which wants texts as they are: JSON and YAML
// write out themselves what a terminal would obey.
func exact(cmd *cobra.Command, terminal bool) bool {
	f := cmd.Flag("output")
	if f == nil {
		return false
	}
	switch f.Value.String() {
	case JSON, YAML, JSONL:
		return true
	case Raw:
		return !terminal
	}
	return false
}

// Palette decides about colour on Out.
func (e Env) Palette(cmd *cobra.Command) (screen.Palette, error) {
	return e.palette(cmd, e.IsTerminal)
}

// ErrPalette decides about colour on Err.
func (e Env) ErrPalette(cmd *cobra.Command) (screen.Palette, error) {
	return e.palette(cmd, e.ErrIsTerminal)
}

func (e Env) palette(cmd *cobra.Command, terminal bool) (screen.Palette, error) {
	mode := screen.Auto
	if f := cmd.Flag(flagColor); f != nil {
		mode = f.Value.String()
	}
	return screen.NewPalette(mode, terminal, e.Getenv)
}

// Columns is the width to draw in.
func (e Env) Columns() int {
	if e.Width > 0 {
		return e.Width
	}
	return 100
}

// Clock writes a time for people, in the user's zone.
func (e Env) Clock(t time.Time) string { return t.In(e.Now().Location()).Format("15:04:05.000") }

// Age writes how long ago a time was.
func (e Env) Age(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return screen.Span(e.Now().Sub(t))
}

// Interrupted turns the end of the user's patience into the ordinary end of a command that only
// watches.
func Interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // that is what it is for
	}
	return err
}
