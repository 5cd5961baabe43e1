// Package job is the commands that look at one job or change it: ls, status, logs, events, timeline, trace, scale, stop.
package job

import (
	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
)

// Commands returns all of them; each stands directly under regroup.
func Commands(env command.Env) []*cobra.Command {
	all := []*cobra.Command{list(env), status(env), logs(env), facts(env), timeline(env), trace(env), scale(env), stop(env)}
	for _, c := range all {
		command.Polish(c)
	}
	return all
}
