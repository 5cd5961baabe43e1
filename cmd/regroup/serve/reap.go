package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/agent/proc"
	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/internal/spawn"
)

// A run that is killed takes its workers with it (PR_SET_PDEATHSIG), but not what they have
// started. A process of its own waits for the end of the run and kills that: `regroup reap`.

// reapWithin bounds how long the reaper tries.
const reapWithin = 30 * time.Second

// Reaper is the process that outlives a run.
type Reaper struct {
	cmd  *exec.Cmd
	hold io.WriteCloser
}

// StartReaper starts the process. What it looks for is what the agent of l remembers in its state
// folder.
func StartReaper(l *Local, a AgentConfig) (*Reaper, error) {
	cmd := exec.Command("/proc/self/exe", "reap", "--state-dir", l.dir, "--node", a.Filled().Node)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for the run
	cmd.Dir = "/"
	hold, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := spawn.Start(cmd); err != nil {
		return nil, fmt.Errorf("start the process that ends what a killed run leaves: %w", err)
	}
	return &Reaper{cmd: cmd, hold: hold}, nil
}

// Close ends the process, once the run has ended its workers itself.
func (r *Reaper) Close() {
	_ = r.cmd.Process.Kill() // it has nothing to do and holds nothing
	_ = r.hold.Close()
	_ = r.cmd.Wait()
}

// ReapCommand is `regroup reap`.
func ReapCommand(c *boot.Config) *cobra.Command {
	var node string
	cmd := &cobra.Command{
		Use: "reap", Hidden: true, Short: "Wait for the end of a run and kill what its workers have left", Args: cobra.NoArgs,
		Example: `  regroup reap --state-dir DIR --node NODE   # by regroup run alone`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := io.Copy(io.Discard, os.Stdin); err != nil { // it ends with the run
				return err
			}
			return reap(cmd.Context(), c.StateDir, node)
		},
	}
	cmd.Flags().StringVar(&node, "node", "", "name of the run's node")
	return cmd
}

// reap kills what the workers of a node have left, unless another run has taken the store over: its
// agent does that then.
func reap(ctx context.Context, dir, node string) error {
	if node == "" {
		return events.Errorf(events.Invalid, "reap: --node is missing")
	}
	lock, err := tryLock(dir, 0, unix.LOCK_EX)
	if errors.Is(err, ErrInUse) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	driver, err := proc.New(proc.Options{StateDir: agentDir(dir, node)})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reapWithin)
	defer cancel()
	return driver.Reap(ctx)
}
