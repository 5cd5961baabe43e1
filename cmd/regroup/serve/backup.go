package serve

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/jetstream/backup"
)

// copyWithin is how long a backup or its restoration may take unless --within says otherwise.
const copyWithin = 10 * time.Minute

// operate connects as the operator, without a server's address to the one of this machine, and
// calls fn with a context that ends after a time.
func operate(cmd *cobra.Command, c *boot.Config, within time.Duration, fn func(ctx context.Context, p *boot.Process) (backup.Manifest, error)) (backup.Manifest, error) {
	own := *c
	wait, err := command.Within(cmd, c.Wait)
	if err != nil {
		return backup.Manifest{}, err
	}
	own.Wait = wait
	ctx, stop := boot.Interruptible(cmd.Context(), nil)
	defer stop()
	var p *boot.Process
	if own.Server == "" {
		s, err := openShared(ctx, own)
		if err != nil {
			return backup.Manifest{}, err
		}
		defer s.Close()
		p = s.process
	} else {
		if p, err = boot.Open(ctx, own, boot.NameInit, nil); err != nil {
			return backup.Manifest{}, err
		}
		defer p.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return fn(ctx, p)
}

// report writes one line about a backup.
func report(cmd *cobra.Command, what, dir string, m backup.Manifest) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s: %s, %d bytes, made %s by regroup %s\n", what, dir, english.Plural(len(m.Streams), "stream"), m.Bytes(), m.Made.Format(time.RFC3339), m.Version)
	return err
}

// BackupCommand is `regroup backup`.
func BackupCommand(c *boot.Config) *cobra.Command {
	var within time.Duration
	cmd := &cobra.Command{
		Use: "backup DIR", Short: "Copy the state of the cluster into a directory", Args: command.Exactly("DIR"),
		Long: "Copies all streams and buckets while the cluster runs; without a server's address those of regroup up on this machine, also after its end. The copies are repeated until no document has changed meanwhile, so that they fit together. " +
			"The directory is readable by its owner alone: it has the environments of jobs.",
		Example: command.Examples("regroup backup ~/regroup-monday", "regroup backup /var/backups/regroup-monday --server nats://broker:4222",
			"regroup restore --check /var/backups/regroup-monday"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := operate(cmd, c, within, func(ctx context.Context, p *boot.Process) (backup.Manifest, error) {
				return p.Conn.Backup(ctx, args[0], c.Version)
			})
			if err != nil {
				return err
			}
			return report(cmd, "saved", args[0], m)
		},
	}
	cmd.Flags().DurationVar(&within, "within", copyWithin, "how long to try; a busy cluster needs several attempts")
	return cmd
}

// RestoreCommand is `regroup restore`.
func RestoreCommand(c *boot.Config) *cobra.Command {
	var within time.Duration
	var check bool
	var replicas int
	cmd := &cobra.Command{
		Use: "restore DIR", Short: "Make the state of a cluster from a backup", Args: command.Exactly("DIR"),
		Long: "Makes the streams and buckets of a backup on brokers that have none. A broker that is alone makes empty ones at its start unless it has --without-streams.",
		Example: command.Examples("regroup serve nats --without-streams --listen 0.0.0.0:4222",
			"regroup restore /var/backups/regroup-monday --server nats://broker:4222", "regroup restore --check /var/backups/regroup-monday"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if check {
				m, err := backup.Check(args[0])
				if err != nil {
					return err
				}
				return report(cmd, "complete:", args[0], m)
			}
			if c.Server == "" {
				return errcode.Errorf(errcode.Invalid, "no server: name an empty one with --server or REGROUP_SERVER; regroup serve nats --without-streams starts it")
			}
			m, err := operate(cmd, c, within, func(ctx context.Context, p *boot.Process) (backup.Manifest, error) {
				return p.Conn.Restore(ctx, args[0], replicas)
			})
			if err != nil {
				return err
			}
			return report(cmd, "restored", args[0], m)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&within, "within", copyWithin, "how long it may take")
	f.BoolVar(&check, "check", false, "only compare the files with their checksums; needs no server")
	f.IntVar(&replicas, "replicas", 0, "copies of every stream: 1, 3 or 5; 0 = as in the backup")
	return cmd
}
