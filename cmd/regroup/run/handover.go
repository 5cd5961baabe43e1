package run

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/agent/proc"
	"github.com/regroup-io/regroup/agent/statedir"
	"github.com/regroup-io/regroup/agent/submitenv"
	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/internal/workerprotocol"
	"github.com/regroup-io/regroup/services/cluster"
)

// nodesWithin is how long to wait for a first node: a server that has just been started has none
// for a moment.
const nodesWithin = 3 * time.Second

// submit submits a job whose workers inherit the working directory and the environment of this
// process, if all nodes that may get workers are of this machine and user, with the state directory
// of config. Otherwise they are alike too: none inherits them, and say is called with a line that
// tells where workers run, as whom, and in whose environment.
func submit(ctx context.Context, c *cluster.Client, config boot.Config, job spec.Job, say func(string)) (ident.JobID, error) {
	var given []agent
	var origin, otherwise string
	id, err := c.SubmitAfter(ctx, job, func(of string, job *spec.Job) {
		origin = of
		job.Processes.SubmitEnvironment = ""
		if job.SelfRegistered() { // its agents run the command that they are started with
			return
		}
		var nodes []events.NodeView
		why := errNoAgent
		if config.Server == "" || agentsRun(config.StateDir) { // of a large cluster the nodes are many
			if nodes, why = workerNodes(ctx, c); why == nil {
				given, why = give(ctx, nodes, config.StateDir, of, *job)
			}
		}
		if why != nil {
			otherwise = whereText(nodes, *job, why)
			return
		}
		job.Processes.SubmitEnvironment = of
	})
	switch {
	case err == nil && otherwise != "":
		say(otherwise)
	case err != nil && ctx.Err() == nil && errcode.Of(err) != errcode.Unavailable: // it was refused: there is no job
		withdraw(ctx, given, origin)
	}
	return id, err
}

var errNoAgent = errcode.Errorf(errcode.NotFound, "no agent of this user and state folder runs on this machine")

// agentsRun reports whether any agent runs with a state directory of this user's agents.
func agentsRun(stateDir string) bool {
	nodes, _ := os.ReadDir(statedir.Of(stateDir, "")) // there may be none
	return slices.ContainsFunc(nodes, func(n os.DirEntry) bool { return statedir.InUse(statedir.Of(stateDir, n.Name())) })
}

// workerNodes waits for a node, and returns all.
func workerNodes(ctx context.Context, c *cluster.Client) (nodes []events.NodeView, err error) {
	limit, cancel := context.WithTimeout(ctx, nodesWithin)
	defer cancel()
	_ = wait.Until(limit, 20*time.Millisecond, func() (bool, error) {
		nodes, err = c.WorkerNodes(ctx)
		return len(nodes) > 0, err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("its nodes are not known here: %w", err)
	case len(nodes) == 0:
		return nil, errcode.Errorf(errcode.NotFound, "the server has no node yet")
	}
	return nodes, nil
}

// give hands the environment of this process to the agents of nodes, or to none.
func give(ctx context.Context, nodes []events.NodeView, stateDir, origin string, job spec.Job) (given []agent, err error) {
	e := workerprotocol.SubmitEnvironment{Origin: origin, Name: job.Name, User: job.Processes.User}
	if e.Dir, err = os.Getwd(); err != nil {
		return nil, fmt.Errorf("this command's folder: %w", err)
	}
	if e.DirID, err = submitenv.Identify(e.Dir); err == nil {
		e.Root, err = submitenv.Identify("/")
	}
	if err != nil {
		return nil, err
	}
	for _, v := range proc.Inherited(os.Environ()) {
		e.Variables = append(e.Variables, []byte(v))
	}
	for _, n := range nodes {
		a := agent{node: n.Node, socket: socketOf(statedir.Socket(statedir.Of(stateDir, string(n.Node))))}
		e.Agent = string(n.Incarnation)
		if err := a.post(ctx, e); err != nil {
			withdraw(ctx, given, origin)
			return nil, err
		}
		given = append(given, a)
	}
	return given, nil
}

// socketOf returns the path of a socket that an agent wanted to have at a path.
func socketOf(wanted string) string {
	if dir, err := os.ReadFile(workerprotocol.SocketNote(wanted)); err == nil {
		return filepath.Join(string(dir), filepath.Base(wanted))
	}
	return wanted
}

// withdraw has agents forget what they were given. One that cannot be reached forgets it later.
func withdraw(ctx context.Context, given []agent, origin string) {
	for _, a := range given {
		_ = a.post(ctx, workerprotocol.SubmitEnvironment{Origin: origin})
	}
}

// named is how many nodes a line names.
const named = 3

// whereText says where workers run, as whom and with whose environment.
func whereText(nodes []events.NodeView, job spec.Job, why error) string {
	where := "on the nodes of the server"
	if n := len(nodes); n > named {
		where = "on " + english.Plural(n, "node")
	} else if n > 0 {
		names := make([]string, n)
		for i, v := range nodes {
			names[i] = string(v.Node)
		}
		where = "on " + strings.Join(names, ", ")
	}
	how, change := "in the folder, as the user and with the environment of the agent there", "--workdir and --env change that"
	switch dir, user := job.Workdir, job.Processes.User; {
	case dir != "" && user != "":
		how, change = fmt.Sprintf("in %s, as %s and with the environment of the agent there", dir, user), "--env changes that"
	case dir != "":
		how, change = fmt.Sprintf("in %s, as the user and with the environment of the agent there", dir), "--env changes that"
	case user != "":
		how = fmt.Sprintf("as %s, in the folder and with the environment that the agent there has for that user", user)
	}
	return fmt.Sprintf("workers run %s %s, not of this command (%v); %s", where, how, why, change)
}
