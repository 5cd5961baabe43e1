package run

import (
	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/serve"
	"github.com/regroup-io/regroup/events/spec"
)

// elasticFlags are those with which horovodrun is elastic: its program then uses hvd.elastic.
var elasticFlags = []string{"min-np", "max-np", "host-discovery-script"}

// HorovodCommand is `regroup horovodrun`: `regroup run`, which has horovodrun's flags, with the
// recovery that a program has there.
func HorovodCommand(env command.Env, c *boot.Config, a serve.AgentConfig, d serve.DiscoveryConfig, w serve.GatewayConfig) *cobra.Command {
	cmd := Command(env, c, a, d, w)
	cmd.Use, cmd.Short = "horovodrun [flags] COMMAND [ARG...]", "Run a script as horovodrun does: the same flags"
	cmd.Long = `Runs a script with horovodrun's command line: put regroup in front, and in the script import regroup.torch as hvd (docs/python.md).
It is regroup run, and takes its flags too. As with horovodrun a job is elastic with --min-np, --max-np or --host-discovery-script:
then workers survive in their processes (--recovery in-process). What each flag does here is in docs/launchers.md.`
	cmd.Example = command.Examples("regroup horovodrun -np 4 python train.py", "regroup horovodrun -np 2 --min-np 1 --max-np 4 python train.py",
		"regroup horovodrun -np 4 -H node-a:2,node-b:2 python train.py")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("recovery") {
			for _, name := range elasticFlags {
				if !cmd.Flags().Changed(name) {
					continue
				}
				if err := cmd.Flags().Set("recovery", string(spec.RecoveryInProcess)); err != nil {
					return err
				}
				env.Say("with --" + name + " workers survive in their processes, as with horovodrun: for a program without hvd.elastic give --recovery restart")
				break
			}
		}
		return run(cmd, args)
	}
	return cmd
}
