package cluster

import (
	"errors"
	"io"
	"os/exec"
	"testing"

	"github.com/regroup-io/regroup/events/ident"
)

// TestJobOf: faults of tests hit workers, and not what else an agent has started.
func TestJobOf(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want ident.JobID
	}{{[]string{"A=1", "REGROUP_JOB=train-1", "B=2"}, "train-1"}, {[]string{"A=REGROUP_JOB=train-1"}, ""}} {
		cmd := exec.CommandContext(t.Context(), "cat")
		cmd.Env = c.env
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err := errors.Join(err1, err2, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		_, err1 = in.Write([]byte("x"))
		if _, err := io.ReadFull(out, make([]byte, 1)); errors.Join(err, err1) != nil { // then it is the program
			t.Fatal(err, err1)
		}
		if got := JobOf(cmd.Process.Pid); got != c.want {
			t.Errorf("with %q: %q, want %q", c.env, got, c.want)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if got := JobOf(cmd.Process.Pid); got != "" {
			t.Errorf("a process that has ended is of %q", got)
		}
	}
}
