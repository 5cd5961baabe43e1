package job

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/escape"
	"github.com/regroup-io/regroup/services/cluster/view"
)

func facts(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "events [JOB | --all]", Short: "Show what happened, event by event",
		Long:    "Prints the facts about a job, without a name the last one, or with --all about every job and node, in the order in which they were stored. With -o json each line is one CloudEvent in structured mode.",
		Example: command.Examples("regroup events mnist", "regroup events mnist -f", "regroup events mnist --type 'incident.*' --since 1h", "regroup events --all -f -o json | jq .type"),
	}
	all := cmd.Flags().Bool("all", false, "every job and node")
	follow := cmd.Flags().BoolP("follow", "f", false, "go on with what comes")
	types := cmd.Flags().StringArray("type", nil, "only types of this `PATTERN`: worker.exited, 'incident.*'; several times: any of them")
	since := cmd.Flags().Duration("since", 0, "only what is younger: 5m")
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(view.TypePatterns(), cobra.ShellCompDirectiveNoFileComp)) // fails only when called twice
	form := command.Reading(cmd, command.Text, command.JSON)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		var wrong []spec.FieldError
		for _, p := range *types {
			if w := view.CheckPattern("--type", p); w != nil {
				wrong = append(wrong, *w)
			}
		}
		if *since < 0 {
			wrong = append(wrong, spec.FieldError{Path: "--since", Message: "must be positive, such as 5m"})
		}
		if len(wrong) > 0 {
			return &errcode.ValidationError{Fields: wrong}
		}
		if *all {
			return command.Exactly()(cmd, args)
		}
		return command.AtMost("JOB")(cmd, args)
	}
	cmd.RunE = env.Connected(func(ctx context.Context, s command.Session) error {
		from := time.Time{}
		if *since > 0 {
			from = env.Now().Add(-*since)
		}
		var err error
		say := func(e events.Event) error {
			t := e.Body.Type()
			if e.Time.Before(from) || len(*types) > 0 && !slices.ContainsFunc(*types, func(p string) bool { return view.Matches(p, t) }) {
				return nil
			}
			return sayFact(env, s.Palette, e, form)
		}
		switch {
		case *all:
			err = s.AllFacts(ctx, !*follow, say)
		default:
			v, found := named(ctx, env, s, theLast)
			if found != nil {
				return found
			}
			if *follow {
				err = s.Follow(ctx, v.Job, say)
			} else {
				err = s.Facts(ctx, v.Job, say)
			}
		}
		return command.Interrupted(ctx, err)
	})
	return cmd
}

func sayFact(env command.Env, p screen.Palette, e events.Event, form *command.Format) error {
	if !form.Is(command.Text) {
		m, err := cloudevent.EncodeStructured(e)
		if err != nil {
			return err
		}
		_, err = form.Item(env.Out, json.RawMessage(m.Data))
		return err
	}
	kind := fmt.Sprintf("%-18s", string(e.Body.Type().Family())+"."+e.Body.Type().Kind())
	switch b := e.Body.(type) {
	case events.JobFailed, events.NodeLost, events.JobRejected:
		kind = p.Bad(kind)
	case events.WorkerExited:
		if b.ExitCode != 0 && !b.Asked {
			kind = p.Bad(kind)
		}
	case events.RoundSealed, events.JobSucceeded:
		kind = p.Good(kind)
	}
	_, err := fmt.Fprintf(env.Out, "%s  %s  %s  %s\n", p.Faint(env.Clock(e.Time)), e.Entity, kind, escape.Line(view.Describe(e.Body)))
	return err
}
