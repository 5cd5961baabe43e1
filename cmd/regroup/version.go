package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
)

// version is set by the linker; empty = the module's, as `go install` knows it.
var version string

type release struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func released() release {
	r := release{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok && r.Version == "" && info.Main.Version != "(devel)" {
		r.Version = info.Main.Version
	}
	r.Version = cmp.Or(r.Version, "dev")
	return r
}

func versionText() string {
	r := released()
	return fmt.Sprintf("regroup %s %s %s", r.Version, r.Go, r.Platform)
}

func versionCommand(out io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Args: command.Exactly(),
		Example: command.Examples("regroup version", "regroup version -o json", "regroup --version"),
	}
	form := command.Output(cmd, command.Text, command.JSON, command.YAML)
	cmd.RunE = func(*cobra.Command, []string) error {
		written, err := form.Write(out, released())
		if !written {
			_, err = fmt.Fprintln(out, versionText())
		}
		return err
	}
	return cmd
}
