package contexts

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/events/errcode"
)

const (
	flagContext = "context"
	envContext  = "REGROUP_CONTEXT"
)

// Flags adds the global flag that names a context.
func Flags(fs *pflag.FlagSet) {
	fs.String(flagContext, "", "`NAME` of the context to use, nats:NAME for one of the NATS command line (REGROUP_CONTEXT; default: the selected one)")
}

// Apply sets flags that were not given from the environment, the context and the settings file, in
// this order. The connection settings of the selected context are not used if the server is given
// by other means.
func Apply(cmd *cobra.Command, getenv func(string) string) error {
	e, err := effectiveFor(cmd, getenv)
	if err != nil {
		return err
	}
	for _, v := range e.settings.Values() {
		f := cmd.Flag(v.Flag)
		if f == nil || f.Changed || (v.Name == "timeout" && cmd.InheritedFlags().Lookup(v.Flag) == nil) {
			continue
		}
		text, from := e.of(v)
		if text == "" {
			continue
		}
		err := f.Value.Set(text)
		if v.Name == "output" && err != nil { // a command that lacks this format uses its default
			err = Settings{Output: text}.Check()
		}
		if err != nil {
			return errcode.Errorf(errcode.Invalid, "%s: %w", from, err)
		}
	}
	return nil
}

// effective are the settings of one command.
type effective struct {
	cmd       *cobra.Command
	getenv    func(string) string
	file      *File
	name      string // of the context, empty = the selected one
	from      string // the flag or variable that names it
	elsewhere bool   // the server is given, and the connection settings of the context are of another
	settings  Settings
}

func effectiveFor(cmd *cobra.Command, getenv func(string) string) (*effective, error) {
	file, err := Load(getenv)
	if err != nil {
		return nil, err
	}
	e := &effective{cmd: cmd, getenv: getenv, file: file}
	if f := cmd.Flag(flagContext); f != nil && f.Changed {
		e.name, e.from = f.Value.String(), "--"+flagContext
	} else if e.name = getenv(envContext); e.name != "" {
		e.from = envContext
	}
	if e.settings, err = file.Resolve(getenv, e.name); err != nil {
		if e.from != "" {
			err = fmt.Errorf("%s: %w", e.from, err)
		}
		return nil, err
	}
	server := cmd.Flag("server")
	e.elsewhere = e.name == "" && (getenv("REGROUP_SERVER") != "" || server != nil && server.Changed)
	return e, nil
}

// of returns the value of a setting, and where it comes from; both are empty for the default.
func (e *effective) of(v Value) (text, from string) {
	if f := e.cmd.Flag(v.Flag); f != nil && f.Changed {
		return f.Value.String(), "--" + v.Flag
	}
	if text := e.getenv(v.Env); text != "" {
		return text, v.Env
	}
	if *v.Text == "" || v.Connection && e.elsewhere {
		return "", ""
	}
	return *v.Text, e.file.Origin(e.getenv, e.name, v.Name)
}

// context returns the name of the context in use, and where it is named.
func (e *effective) context() (name, from string) {
	if name := e.file.InUse(); e.name == "" && name != "" {
		return name, e.file.SelectedAt()
	}
	return e.name, cmp.Or(e.from, "default")
}
