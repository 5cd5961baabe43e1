// Package command holds what all sub-commands share: input and output, the connection to the
// system, global flags, and suggestions for mistyped words.
package command

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/escape"
	"github.com/regroup-io/regroup/services/cluster"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// Env is the environment of a command. Data goes to Out, messages to Err. All fields but In must be
// set.
type Env struct {
	// Connect connects to the servers within a time and reports waits; the returned function closes
	// the connections.
	Connect       func(ctx context.Context, within time.Duration, say func(string)) ([]cluster.Server, func(), error)
	In            io.Reader
	Out, Err      io.Writer
	IsTerminal    bool // Out is one
	ErrIsTerminal bool // Err is one
	Width         int  // columns of drawings
	Getenv        func(string) string
	Now           func() time.Time // its location is that of printed times
	Source        string           // CloudEvents source of commands
}

// Names of the global flags.
const (
	flagColor   = "color"
	flagTimeout = "timeout"
)

// GlobalFlags adds the flags that mean the same in every command.
func GlobalFlags(fs *pflag.FlagSet) {
	colour := &word{what: "mode", typ: "string", allowed: []string{screen.Auto, screen.Always, screen.Never}, value: screen.Auto}
	fs.Var(colour, flagColor, "auto, always or never; auto heeds NO_COLOR and CLICOLOR_FORCE (REGROUP_COLOR)")
	fs.Duration(flagTimeout, cluster.DefaultAnswerWithin, "how long to wait for a server, and for the answer to a command (REGROUP_TIMEOUT)")
}

// Client connects and returns a client; done closes the connection.
func (e Env) Client(cmd *cobra.Command) (c *cluster.Client, done func(), err error) {
	within, err := Timeout(cmd)
	if err != nil {
		return nil, nil, err
	}
	servers, done, err := e.Connect(cmd.Context(), within, e.Say)
	if err != nil {
		return nil, nil, err
	}
	c = e.ClientOf(e.Source, within, servers...)
	c.Exact = exact(cmd, e.IsTerminal)
	return c, done, nil
}

// ClientOf returns a client of connected servers, with the CloudEvents source of its commands.
func (e Env) ClientOf(source string, within time.Duration, servers ...cluster.Server) *cluster.Client {
	c := cluster.Of(source, servers...)
	c.AnswerWithin, c.Waits, c.Chosen = within, e.Say, e.Say
	c.Now, c.Trace = e.Now, cluster.Trace(e.Getenv)
	c.Warn = func(err error) { e.Say("warning: " + err.Error()) }
	return c
}

// Say prints a message for the user to Err.
func (e Env) Say(text string) { fmt.Fprintln(e.Err, "regroup:", escape.Text(text)) }

// Timeout is the value of --timeout, or its default.
func Timeout(cmd *cobra.Command) (time.Duration, error) {
	f := cmd.Flag(flagTimeout)
	if f == nil {
		return cluster.DefaultAnswerWithin, nil
	}
	d, err := time.ParseDuration(f.Value.String())
	if own := f != cmd.Root().PersistentFlags().Lookup(flagTimeout); own && d == 0 { // the command's own flag: it does not bound the connection
		return cluster.DefaultAnswerWithin, nil
	}
	if err != nil || d <= 0 {
		return 0, errcode.Errorf(errcode.Invalid, "--timeout is %s, must be more than 0", f.Value)
	}
	return d, nil
}

// Within returns how long a service waits for its server: --timeout if it is given, else the
// configured time.
func Within(cmd *cobra.Command, configured time.Duration) (time.Duration, error) {
	if f := cmd.Flag(flagTimeout); f == nil || !f.Changed {
		return configured, nil
	}
	return Timeout(cmd)
}

// exact reports whether a command writes for a program, which needs texts unchanged: these forms
// escape control characters themselves.
func exact(cmd *cobra.Command, terminal bool) bool {
	f := cmd.Flag("output")
	if f == nil {
		return false
	}
	form, _, _ := strings.Cut(f.Value.String(), "=")
	switch form {
	case JSONPath, Template, JSON, YAML, JSONL, SVG, Perfetto, OTLP:
		return true
	case Raw:
		return !terminal
	}
	return false
}

// Palette returns the palette for Out or Err; terminal = that is one.
func (e Env) Palette(cmd *cobra.Command, terminal bool) screen.Palette {
	return screen.NewPalette(Colour(cmd), terminal, e.Getenv)
}

// Colour returns the mode of --color.
func Colour(cmd *cobra.Command) string {
	if f := cmd.Flag(flagColor); f != nil {
		return f.Value.String()
	}
	return screen.Auto
}

// Clock formats a time in the user's zone.
func (e Env) Clock(t time.Time) string { return t.In(e.Now().Location()).Format("15:04:05.000") }

// Age formats the time since t.
func (e Env) Age(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return view.Span(e.Now().Sub(t))
}

// Interrupted turns an interrupt into success for a command that only watches.
func Interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // an interrupt is its normal end
	}
	return err
}
