package job

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/internal/exitcode"
	again "github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/cluster/view"
)

var errTooLong = errors.New("waited long enough")

func wait(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "wait [JOB]", Short: "Wait until a job has ended, and exit with its outcome", Args: command.AtMost("JOB"),
		Long:    "Waits until a job has ended and exits as regroup run does: 0 succeeded, 10 failed, 11 stopped, 14 failure budget used up; 12 if it has not ended within --timeout. With -o json it prints the object that run -o json prints. Without a name it is about the job that was submitted last.",
		Example: command.Examples("regroup wait mnist-7f3a", "regroup wait mnist --timeout 1h && ./evaluate.sh", "regroup wait mnist --for running", "regroup wait mnist --for 'step>=500' --timeout 10m", "regroup wait mnist --for 'workers>=4' && regroup top", "regroup wait mnist -o json | jq .outcome"),
	}
	until := cmd.Flags().String("for", "", "wait for a `CONDITION` instead: running or finishing (or a state after it), 'step>=N', 'workers>=N' (those that train), or a value that the program reports, as 'loss<=0.1'; in quotes, and <= is there for all")
	_ = cmd.RegisterFlagCompletionFunc("for", completeCondition(env)) // fails only when called twice
	limit := cmd.Flags().Duration("timeout", 0, "how long to wait for the end; 0 = as long as it takes")
	form := command.Reading(cmd, command.Text, command.JSON, command.YAML)
	var met condition
	onIt := onJob(env, func(ctx context.Context, s command.Session, v events.JobView) error {
		if *limit > 0 {
			var cancel func()
			ctx, cancel = context.WithTimeoutCause(ctx, *limit, errTooLong)
			defer cancel()
		}
		if met.text != "" {
			return await(ctx, env, s, v, met, *limit)
		}
		if !v.State.Terminal() {
			job := v.Job
			if err := s.AwaitEnd(ctx, job); errors.Is(context.Cause(ctx), errTooLong) {
				return &exitcode.Error{Code: exitcode.TimedOut, Err: fmt.Errorf("%s has not ended within %s: it is %s", job, view.Span(*limit), v.State)}
			} else if err != nil {
				return err
			}
			var err error
			if v, err = s.Job(ctx, string(job)); err != nil {
				return err
			}
		}
		end := view.Summarize(v, env.Now())
		if written, err := form.Write(env.Out, end); err != nil {
			return err
		} else if !written {
			if err := screen.Final(env.Err, env.Palette(cmd, env.ErrIsTerminal), v, env.Now()); err != nil {
				return err
			}
		}
		return end.Err()
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if met, err = conditionOf(*until); err != nil {
			return err
		}
		return onIt(cmd, args)
	}
	return cmd
}

// condition is what a job is waited for.
type condition struct {
	text  string
	state int    // index in states; 0 = none
	name  string // of a number otherwise
	least bool   // it must be at least the limit, else at most
	limit float64
}

// states are those of a job that has not ended, in their order.
var states = []events.JobState{events.JobStateWaiting, events.JobStateRunning, events.JobStateFinishing, events.JobStateStopping}

const (
	ofStep    = "step"
	ofWorkers = "workers"
)

// conditionOf reads the value of --for; "" is none.
func conditionOf(text string) (condition, error) {
	c := condition{text: text}
	if text == "" {
		return c, nil
	}
	if at := slices.Index(states, events.JobState(text)); at > 0 && states[at] != events.JobStateStopping {
		c.state = at
		return c, nil
	}
	name, limit, found := strings.Cut(text, ">=")
	if c.least = found; !found {
		name, limit, found = strings.Cut(text, "<=")
	}
	c.name = strings.TrimSpace(name)
	n, err := strconv.ParseFloat(strings.TrimSpace(limit), 64)
	switch counts := c.name == ofStep || c.name == ofWorkers; {
	case text == ofStep || text == ofWorkers:
		return c, errcode.Errorf(errcode.Invalid, "--for %s: the shell has taken the rest for files: write it in quotes, --for '%[1]s>=4'", text)
	case !found || c.name == "":
		return c, errcode.Errorf(errcode.Invalid, "--for %q: write running or finishing, 'step>=N', 'workers>=N', or a value that the program reports, as 'loss<=0.1'; without it the command waits for the end", text)
	case err != nil || math.IsNaN(n) || counts && (n < 0 || n != math.Trunc(n)):
		return c, errcode.Errorf(errcode.Invalid, "--for %q: %q is no number%s", text, strings.TrimSpace(limit), map[bool]string{true: " of " + strings.TrimSuffix(c.name, "s") + "s"}[counts])
	}
	c.limit = n
	return c, nil
}

// holds reports whether a job meets the condition, and says how it is instead.
func (c condition) holds(v events.JobView) (met bool, instead string) {
	if c.state > 0 {
		return v.State.Terminal() || slices.Index(states, v.State) >= c.state, "it is " + string(v.State)
	}
	value, known := 0.0, true
	switch c.name {
	case ofStep:
		value, instead = float64(v.Step), fmt.Sprintf("its step is %d", v.Step)
	case ofWorkers:
		n := view.Members(v)
		value, instead = float64(n), english.Clause(n, "worker", "train")
	default:
		var m events.Metric
		if m, known = v.Reported[c.name]; !known {
			m.Value, known = v.Metrics[c.name]
		}
		value, instead = m.Value, fmt.Sprintf("its %s is %s", c.name, view.Number(m.Value))
	}
	if !known {
		return false, "it has reported no " + c.name
	}
	return c.least && value >= c.limit || !c.least && value <= c.limit, instead
}

// await waits until a job meets a condition. A job that has ended before that ends the command: one
// that has not succeeded as wait does.
func await(ctx context.Context, env command.Env, s command.Session, v events.JobView, c condition, limit time.Duration) error {
	job := v.Job
	met, instead := c.holds(v)
	warn := sync.OnceFunc(func() {
		env.Say(fmt.Sprintf("%s reports %s, and no %s so far", job, strings.Join(slices.Sorted(maps.Keys(v.Reported)), ", "), c.name))
	})
	err := again.Until(ctx, stateEvery, func() (bool, error) {
		now, err := s.Job(ctx, string(job))
		if err != nil {
			return false, err
		}
		if s.Live(ctx, &now); ctx.Err() != nil && !now.State.Terminal() {
			return false, context.Cause(ctx) // the answer may be missing: what was seen before is newer
		}
		v = now
		if met, instead = c.holds(v); !met && len(v.Reported) > 0 && strings.HasPrefix(instead, "it has reported no") {
			warn()
		}
		return met || v.State.Terminal(), nil
	})
	switch {
	case errors.Is(context.Cause(ctx), errTooLong):
		what := string(job) + ": " + c.text + " was not reached"
		if c.state > 0 {
			what = string(job) + " is not " + c.text
		}
		return &exitcode.Error{Code: exitcode.TimedOut, Err: fmt.Errorf("%s within %s: %s", what, view.Span(limit), instead)}
	case err != nil:
		return err
	case v.State.Terminal() && v.State != events.JobStateSucceeded && (!met || c.state > 0):
		return view.Summarize(v, v.Ended).Err()
	case !met:
		return &exitcode.Error{Code: exitcode.NotAllowed, Err: fmt.Errorf("%s has %s, and %s was not reached: %s", job, v.State, c.text, instead)}
	}
	return nil
}

// stateEvery is the time between two looks at a job.
const stateEvery = 100 * time.Millisecond
