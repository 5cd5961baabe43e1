package contexts

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/cmd/regroup/internal/settings"
	"github.com/regroup-io/regroup/events"
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
	file, err := settings.Load(settings.Path(getenv))
	if err != nil {
		return err
	}
	name, from := "", ""
	if f := cmd.Flag(flagContext); f != nil && f.Changed {
		name, from = f.Value.String(), "--"+flagContext+": "
	} else if name = getenv(envContext); name != "" {
		from = envContext + ": "
	}
	s, err := file.Resolve(getenv, name)
	if err != nil {
		return fmt.Errorf("%s%w", from, err)
	}
	server := cmd.Flag("server")
	elsewhere := name == "" && (getenv("REGROUP_SERVER") != "" || server != nil && server.Changed)
	for _, v := range s.Values() {
		f := cmd.Flag(v.Name)
		if f == nil || f.Changed || (v.Name == "timeout" && cmd.InheritedFlags().Lookup(v.Name) == nil) {
			continue
		}
		text, from := getenv(v.Env), v.Env
		if text == "" && !(v.Connection && elsewhere) {
			text, from = *v.Text, "context"
		}
		if text == "" {
			continue
		}
		err := f.Value.Set(text)
		if v.Name == "output" && err != nil { // a command that lacks this format uses its default
			err = settings.Settings{Output: text}.Check()
		}
		if err != nil {
			return events.Errorf(events.Invalid, "%s: %w", from, err)
		}
	}
	return nil
}
