package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/internal/version"
)

type release struct {
	Version  string            `json:"version"`
	Commit   string            `json:"commit,omitempty"` // in full; empty = unknown
	Go       string            `json:"go"`
	Platform string            `json:"platform"`
	Modules  map[string]string `json:"modules"` // versions of the libraries in this program, by path
}

func released() release {
	r := release{Version: version.String(), Commit: version.Commit(), Go: runtime.Version(), Platform: platform(), Modules: map[string]string{}}
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, m := range b.Deps {
			r.Modules[m.Path] = m.Version
		}
	}
	return r
}

func platform() string {
	return runtime.GOOS + "/" + runtime.GOARCH
}

func versionText() string {
	return version.Text() + " " + platform()
}

func versionCommand(out io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Args: command.Exactly(),
		Example: command.Examples("regroup version", "regroup version -o json", "regroup --version"),
	}
	form := command.Reading(cmd, command.Text, command.JSON, command.YAML)
	cmd.RunE = func(*cobra.Command, []string) error {
		written, err := form.Write(out, released())
		if !written {
			_, err = fmt.Fprintln(out, versionText())
		}
		return err
	}
	return cmd
}
