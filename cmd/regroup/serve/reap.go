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

// The workers of a killed run die with it (PR_SET_PDEATHSIG), but not their child processes. A
// separate process waits for the end of the run and kills those: `regroup reap`.

const reapWithin = 30 * time.Second

// Reaper is a process that outlives a run.
type Reaper struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

// StartReaper starts the process, which reads the state of the agent of l.
func StartReaper(l *Local, a AgentConfig) (*Reaper, error) {
	cmd := exec.Command("/proc/self/exe", "reap", "--state-dir", l.dir, "--node", a.Filled().Node)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is handled by the run
	cmd.Dir = "/"
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := spawn.Start(cmd); err != nil {
		return nil, fmt.Errorf("start the process that ends what a killed run leaves: %w", err)
	}
	return &Reaper{cmd: cmd, stdin: stdin}, nil
}

// Close ends the process, after the run has ended its workers.
func (r *Reaper) Close() {
	_ = r.cmd.Process.Kill() // it has no state
	_ = r.stdin.Close()
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

// reap kills the processes that a node's workers have left, unless another run owns the store: then
// its agent does.
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
