// Package commandtest runs command lines against a system without services.
package commandtest

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/internal/exitcode"
	"github.com/regroup-io/regroup/services/cluster"
	"github.com/regroup-io/regroup/services/cluster/clustertest"
)

// World is a system, and runs commands that are connected to it.
type World struct{ *clustertest.World }

// New returns an empty system that ends with the test.
func New(t testing.TB) World { return World{clustertest.New(t)} }

// Output is the output and the exit code of a command.
type Output struct {
	Out, Err string
	Exit     int
	Failure  error
}

// Env is the environment of a command that writes to out and err.
func (w World) Env(in string, out, err *bytes.Buffer) command.Env {
	return command.Env{
		Connect: func(context.Context, time.Duration, func(string)) ([]cluster.Server, func(), error) {
			return []cluster.Server{{Ports: w.Ports}}, func() {}, nil
		},
		In: bytes.NewBufferString(in), Out: out, Err: err, Width: 100,
		Getenv: func(string) string { return "" }, Now: func() time.Time { return clustertest.Now }, Source: "/regroup/cli/test",
	}
}

// slow is what a command says when the machine is busy.
var slow = regexp.MustCompile(`(?m)^regroup: waiting up to \w+ for an answer of the server\n`)

// Run runs one command line with the commands under a root that has the global flags. That an
// answer is slow is left out of what it says.
func (w World) Run(ctx context.Context, stdin string, commands func(command.Env) []*cobra.Command, args ...string) Output {
	var out, talk bytes.Buffer
	root := &cobra.Command{Use: "regroup"}
	command.GlobalFlags(root.PersistentFlags())
	root.AddCommand(commands(w.Env(stdin, &out, &talk))...)
	command.WithUsage(root)
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&talk)
	err := root.ExecuteContext(ctx)
	if err != nil && err.Error() != "" {
		fmt.Fprintln(&talk, err)
	}
	return Output{out.String(), slow.ReplaceAllString(talk.String(), ""), exitcode.Of(err), err}
}
