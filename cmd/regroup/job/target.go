package job

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/client"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/events"
)

// onJob makes the body of a command that reads one job: the one that its only argument names, else
// the one that was submitted last.
func onJob(env command.Env, do func(ctx context.Context, s command.Session, v events.JobView) error) func(*cobra.Command, []string) error {
	return env.Connected(func(ctx context.Context, s command.Session) error {
		v, err := named(ctx, env, s, last)
		if err != nil {
			return err
		}
		return do(ctx, s, v)
	})
}

// changing is onJob for a command that changes the job: without a name it is about the only one
// that it can be meant for. of, if not nil, limits those to the ones that the command has a meaning
// for.
func changing(env command.Env, of func(events.JobView) bool, do func(ctx context.Context, s command.Session, v events.JobView) error) func(*cobra.Command, []string) error {
	return env.Connected(func(ctx context.Context, s command.Session) error {
		v, err := named(ctx, env, s, func(ctx context.Context, c *client.Client) (events.JobView, error) {
			return only(ctx, c, env.Source, of)
		})
		if err != nil {
			return err
		}
		return do(ctx, s, v)
	})
}

// named finds the job that the first argument names. Without one it is what choose returns, and
// that is said.
func named(ctx context.Context, env command.Env, s command.Session, choose func(context.Context, *client.Client) (events.JobView, error)) (events.JobView, error) {
	if len(s.Args) > 0 {
		return s.Job(ctx, s.Args[0])
	}
	v, err := choose(ctx, s.Client)
	if err != nil {
		return v, err
	}
	fmt.Fprintf(env.Err, "no job named: %s\n", v.Job)
	return s.Job(ctx, string(v.Job))
}

// last is the job that was submitted last.
func last(ctx context.Context, c *client.Client) (events.JobView, error) {
	all, err := c.Jobs(ctx)
	if err == nil && len(all) == 0 {
		err = events.Errorf(events.NotFound, "there is no job yet; start one: regroup run -- COMMAND")
	}
	if err != nil {
		return events.JobView{}, err
	}
	return all[0], nil
}

// nobody are the sources of commands that do not say whose they are, but are of this machine or
// belong to all.
var nobody = []string{client.RunSource}

// only is the one job that has not ended and that source may have meant. Where there are several,
// or the one is somebody else's, its name must be given.
func only(ctx context.Context, c *client.Client, source string, of func(events.JobView) bool) (events.JobView, error) {
	all, err := c.Jobs(ctx)
	if err != nil {
		return events.JobView{}, err
	}
	var names []string
	var found events.JobView
	for _, v := range all {
		if !v.State.Terminal() && (of == nil || of(v)) {
			names, found = append(names, string(v.Job)), v
		}
	}
	switch {
	case len(names) == 0:
		return found, events.Errorf(events.NotFound, "there is no job that could be meant: see regroup ls")
	case len(names) > 1:
		slices.Sort(names)
		return found, events.Errorf(events.Invalid, "name the job: %d have not ended: %s", len(names), strings.Join(names[:min(len(names), 10)], ", "))
	case of == nil && found.By != source && !slices.Contains(nobody, found.By):
		return found, events.Errorf(events.Invalid, "name the job: %s, the only one that has not ended, was submitted by %s", found.Job, found.By)
	}
	return found, nil
}
