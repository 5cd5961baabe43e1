package job

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/jobflags"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/services/cluster"
	"github.com/regroup-io/regroup/services/cluster/view"
)

func scale(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "scale [JOB] MIN:MAX", Short: "Change the wanted number of workers", Args: command.Between(1, "JOB", "MIN:MAX"),
		Long:    "Changes the wanted number of workers. The job regroups at its next commit: no step is lost, and it costs nothing of the failure budget. N alone means exactly N. It trains on until they are ready; if there is no room for MIN, it waits until there is. Without a name it is about the only job that has not ended, if that is your own.",
		Example: command.Examples("regroup scale mnist-7f3a 2:8", "regroup scale mnist 4", "regroup scale mnist 1:1 --timeout 1m"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		job, size := args[:len(args)-1], args[len(args)-1]
		w, err := jobflags.Workers(size)
		if err != nil {
			return err
		}
		return changing(env, nil, func(ctx context.Context, s command.Session, v events.JobView) error {
			if err := s.ChangeJob(ctx, cluster.Scale(v.Job, w)); err != nil {
				return err
			}
			fmt.Fprintf(env.Err, "%s wants %s\n", v.Job, view.WorkersText(w))
			return nil
		})(cmd, job)
	}
	return cmd
}

func stop(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "stop [JOB]", Aliases: []string{"cancel"}, Short: "End a job", Args: command.AtMost("JOB"),
		Long:    "Asks the workers of a job to stop: they get the job's stop signal and its grace. With --now they are killed. Without a name it is about the only job that has not ended, if that is your own.",
		Example: command.Examples("regroup stop mnist-7f3a", "regroup stop mnist --now", "regroup stop mnist --reason 'wrong learning rate'"),
	}
	now := cmd.Flags().Bool("now", false, "kill the workers instead of asking them")
	reason := cmd.Flags().String("reason", "", "why; it is kept with the job")
	cmd.RunE = changing(env, nil, func(ctx context.Context, s command.Session, v events.JobView) error {
		if v.State.Terminal() {
			fmt.Fprintf(env.Err, "%s has ended already: %s\n", v.Job, v.State)
			return nil
		}
		if err := s.ChangeJob(ctx, cluster.Stop(v.Job, *reason, *now)); err != nil {
			return err
		}
		fmt.Fprintf(env.Err, "%s is stopping\n", v.Job)
		return nil
	})
	return cmd
}

func closeRendezvous(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "close [JOB]", Short: "Let no more nodes join a job by themselves", Args: command.AtMost("JOB"),
		Long:    "Closes the rendezvous of a job that agents join with --join-job, for good. The nodes that are in go on, also after a loss, as long as they are enough; spares and those who come later are sent away. To end the job, stop it. Without a name it is about the only job that has not ended, if that is your own.",
		Example: command.Examples("regroup close mnist-7f3a", "regroup close mnist --reason 'the reservation ends'", "regroup stop mnist"),
	}
	reason := cmd.Flags().String("reason", "", "why; it is told to those who are sent away")
	open := func(v events.JobView) bool { return v.Spec.SelfRegistered() }
	cmd.RunE = changing(env, open, func(ctx context.Context, s command.Session, v events.JobView) error {
		if !v.Spec.SelfRegistered() {
			return errcode.Errorf(errcode.Invalid, "%s is placed by the scheduler: nodes do not join it by themselves", v.Job)
		}
		ctx, cancel := context.WithTimeout(ctx, v.Spec.Rendezvous.CloseTimeout.D())
		defer cancel()
		g, err := s.CloseRendezvous(ctx, v.Job, *reason)
		if err != nil {
			return err
		}
		fmt.Fprintf(env.Err, "%s is closed, with %s\n", v.Job, english.Plural(g.Nodes, "node"))
		return nil
	})
	return cmd
}
