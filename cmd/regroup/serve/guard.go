package serve

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/agent/proc"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/events/errcode"
)

// guardCommand returns the command line of the guard of an agent: a hidden command of this program.
func guardCommand(dir string) *exec.Cmd {
	return exec.Command("/proc/self/exe", "guard", dir, strconv.Itoa(os.Getpid()))
}

// GuardCommand is `regroup guard`.
func GuardCommand() *cobra.Command {
	return &cobra.Command{
		Use: "guard DIR PID", Hidden: true, Short: "End the workers of an agent that is frozen or was killed", Args: cobra.ExactArgs(2),
		Example: command.Examples("regroup guard DIR PID   # by agents alone"),
		RunE: func(cmd *cobra.Command, args []string) error {
			agent, err := strconv.Atoi(args[1])
			if err != nil {
				return errcode.Errorf(errcode.Invalid, "guard: the agent's process id is %q", args[1])
			}
			driver, err := proc.New(proc.Options{StateDir: args[0]})
			if err != nil {
				return err
			}
			if err := syscall.SetNonblock(int(os.Stdin.Fd()), true); err != nil {
				return errcode.Errorf(errcode.Invalid, "guard: standard input: %w", err)
			}
			return driver.Guard(cmd.Context(), os.NewFile(os.Stdin.Fd(), "agent"), agent)
		},
	}
}
