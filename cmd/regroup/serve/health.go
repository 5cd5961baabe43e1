package serve

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/services/cluster"
)

// healthWithin bounds a health check: container engines have short timeouts.
const healthWithin = 3 * time.Second

// HealthCommand is `regroup health`, for container health checks.
func HealthCommand(c *boot.Config) *cobra.Command {
	return &cobra.Command{
		Use: "health", Short: "Ask the regroup process of this host whether it is ready", Args: cobra.NoArgs,
		Long:    "Asks the process that answers at --health whether it is ready, and exits with 0 if it is. Without an address it asks the services of the regroup up that this user runs here.",
		Example: command.Examples("regroup health --health 127.0.0.1:7479", "REGROUP_HEALTH=127.0.0.1:7479 regroup health", "docker inspect -f '{{.State.Health.Status}}' CONTAINER"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			within, err := command.Within(cmd, healthWithin)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), within)
			defer cancel()
			switch {
			case c.Health != "":
				return boot.AskHealth(ctx, c.Health)
			case !Shared(*c):
				return errcode.Errorf(errcode.Invalid, "no regroup up of this user runs here: for another process give its --health host:port or REGROUP_HEALTH")
			}
			own := *c
			own.Wait = within
			s, err := openShared(ctx, own)
			if err != nil {
				return err
			}
			defer s.Close()
			if silent := cluster.Silent(ctx, s.Ports.Calls); len(silent) > 0 {
				return errcode.Errorf(errcode.Unavailable, "regroup up is not ready: of %s none answers", strings.Join(silent, ", "))
			}
			return nil
		},
	}
}
