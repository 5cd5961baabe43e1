package job

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/services/cluster"
)

// choice finds the job that a command is about if none is named.
type choice struct {
	what string // it is in a few words
	find func(context.Context, *cluster.Client) (events.JobView, error)
}

var theLast = choice{"the last job", last}

// onJob returns the body of a command that reads one job: the one that its only argument names,
// else the one that was submitted last. It says so if no registry knows how the job is now.
func onJob(env command.Env, do func(ctx context.Context, s command.Session, v events.JobView) error) func(*cobra.Command, []string) error {
	return chosen(env, theLast, func(ctx context.Context, s command.Session, v events.JobView) error {
		env.SayStale(s.StaleJobs(ctx, v))
		return do(ctx, s, v)
	})
}

// changing is onJob for a command that changes the job: without a name it applies to the only
// possible one. of, if not nil, selects the jobs that the command can change.
func changing(env command.Env, of func(events.JobView) bool, do func(ctx context.Context, s command.Session, v events.JobView) error) func(*cobra.Command, []string) error {
	return chosen(env, choice{"the only job that has not ended", func(ctx context.Context, c *cluster.Client) (events.JobView, error) {
		return only(ctx, c, of)
	}}, do)
}

func chosen(env command.Env, choose choice, do func(ctx context.Context, s command.Session, v events.JobView) error) func(*cobra.Command, []string) error {
	return env.Connected(func(ctx context.Context, s command.Session) error {
		v, err := named(ctx, env, s, choose)
		if err != nil {
			return err
		}
		return do(ctx, s, v)
	})
}

// named finds the job that the first argument names. Without one it is the one that choose finds,
// which is said.
func named(ctx context.Context, env command.Env, s command.Session, choose choice) (events.JobView, error) {
	if len(s.Args) > 0 {
		return s.Job(ctx, s.Args[0])
	}
	v, err := choose.find(ctx, s.Client)
	if err != nil {
		return v, err
	}
	fmt.Fprintf(env.Err, "%s, %s:\n", choose.what, v.Job)
	return s.Job(ctx, string(v.Job))
}

func last(ctx context.Context, c *cluster.Client) (events.JobView, error) {
	all, err := c.Jobs(ctx)
	if err == nil && len(all) == 0 {
		err = errcode.Errorf(errcode.NotFound, "there is no job yet; start one: regroup run -- COMMAND")
	}
	if err != nil {
		return events.JobView{}, err
	}
	return all[0], nil
}

// only returns the only job that has not ended and that belongs to this client. If there are
// several, or it belongs to another user, the name must be given.
func only(ctx context.Context, c *cluster.Client, of func(events.JobView) bool) (events.JobView, error) {
	all, err := c.Jobs(ctx)
	if err != nil {
		return events.JobView{}, err
	}
	var names []string
	var found events.JobView
	for _, v := range all {
		if !v.State.Terminal() && c.MayChange(v) && (of == nil || of(v)) {
			names, found = append(names, string(v.Job)), v
		}
	}
	switch {
	case len(names) == 0:
		return found, errcode.Errorf(errcode.NotFound, "there is no job that could be meant: see regroup ls")
	case len(names) > 1:
		slices.Sort(names)
		return found, errcode.Errorf(errcode.Invalid, "name the job: %d have not ended: %s", len(names), strings.Join(names[:min(len(names), 10)], ", "))
	case of == nil && !c.Owns(found) && found.By != cluster.RunSource:
		return found, errcode.Errorf(errcode.Invalid, "name the job: %s, the only one that has not ended, was submitted by %s", found.Job, found.By)
	}
	return found, nil
}
