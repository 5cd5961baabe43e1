package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/agent"
	"github.com/regroup-io/regroup/agent/logs"
	"github.com/regroup-io/regroup/agent/statedir"
	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/jobflags"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/internal/escape"
	"github.com/regroup-io/regroup/internal/exitcode"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/cluster"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// joinEvent is the id of the event that submits the job of a run.
func joinEvent(run string) string { return "join-" + run }

// joinedJob finds the job that an agent joins: with a command it is the run's, created by the first
// agent; without one it exists already.
func joinedJob(ctx context.Context, c *cluster.Client, j *jobflags.Join, args []string) (*agent.Joining, error) {
	if len(args) > 0 {
		job, err := j.Spec(args)
		if err != nil {
			return nil, err
		}
		return CreateJob(ctx, c, joinEvent(j.Run), job)
	}
	v, err := c.Submitted(ctx, j.Run, joinEvent(j.Run))
	if errcode.Of(err) == errcode.NotFound {
		v, err = c.Job(ctx, j.Run)
	}
	if errcode.Of(err) == errcode.NotFound {
		return nil, errcode.Errorf(errcode.NotFound, "there is no job %s to join: give its command after --, and the first agent creates it", j.Run)
	}
	if err == nil && !v.Spec.SelfRegistered() {
		err = errcode.Errorf(errcode.Invalid, "%s is placed by the scheduler: start the agent without --join-job", v.Job)
	}
	return &agent.Joining{Job: v.Job, Spec: v.Spec.WithDefaults()}, err
}

// NameInUse reports whether a node has a living agent: one with another state directory than the
// one here, or one that runs with this directory. A command asks before it announces anything.
func NameInUse(ctx context.Context, c *cluster.Client, stateDir, node string) (bool, error) {
	nodes, err := c.Nodes(ctx)
	if errcode.Of(err) == errcode.Invalid { // this user may not look: discovery refuses what must not be
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, v := range nodes {
		if string(v.Node) != node || v.State != events.NodeStateReady && v.State != events.NodeStateSuspected {
			continue
		}
		dir := statedir.Of(stateDir, node)
		ours, err := statedir.Incarnations(dir)
		return !slices.Contains(ours, v.Incarnation) || statedir.InUse(dir), err
	}
	return false, nil
}

// JoinSource is the CloudEvents source of the jobs that agents create: the same on every machine,
// so that the event and the job's id do not depend on which agent is first.
const JoinSource = "/client/agent/join"

// CreateJob returns the job of an event, which all agents that join it give alike. The first of
// them creates it.
func CreateJob(ctx context.Context, c *cluster.Client, event string, job spec.Job) (*agent.Joining, error) {
	id, err := c.SubmitOnce(ctx, event, job)
	return &agent.Joining{Job: id, Spec: job}, err
}

// console is where a command shows the workers' output, and everything else.
type console struct {
	out, errs io.Writer
	terminal  bool // out is one
	palette   screen.Palette
}

// consoleOf returns that of a command.
func consoleOf(cmd *cobra.Command) console {
	c := console{out: cmd.OutOrStdout(), errs: cmd.ErrOrStderr()}
	if f, ok := c.out.(*os.File); ok {
		c.terminal = boot.IsTerminal(f)
	}
	c.palette = screen.NewPalette(command.Colour(cmd), c.terminal, os.Getenv)
	return c
}

// joinJob runs the agent until its job has ended, and exits with the job's outcome.
func joinJob(ctx context.Context, p *boot.Process, a AgentConfig, j *jobflags.Join, args []string, to console, made func(*agent.Agent)) (err error) {
	c := cluster.New(p.Ports, JoinSource)
	c.AnswerWithin = p.Config.Wait
	node := a.Filled().Node
	switch used, err := NameInUse(ctx, c, p.Config.StateDir, node); {
	case err != nil:
		return err
	case used:
		return errcode.Errorf(errcode.Conflict, "node %s has a living agent: give this one another name (--node, REGROUP_AGENT_NODE)", node)
	}
	join, err := joinedJob(ctx, c, j, args)
	if err != nil {
		return err
	}
	bottom := screen.NewSticky(to.out, to.terminal, time.Now)
	defer func() { _ = bottom.Finish() }() // a reader who has gone ends nothing
	errs := bottom.Writer(to.errs)
	report := &reporter{to: errs, job: join.Job}
	per := join.Spec.Rendezvous.WorkersPerNode
	report.say("node %s comes to it: %s, %s each", a.Filled().Node, english.Plural(join.Spec.Rendezvous.Nodes.Min, "node")+" at least", english.Plural(per, "worker"))
	m := Membership{Process: p, Agent: a, Client: c, Job: join, Made: made, Err: errs, report: report}
	m.Output = func(l logs.Line) {
		// A reader who has gone ends nothing.
		_ = bottom.Line(to.out, to.terminal, screen.Printed{
			Of: output.Source{Place: l.Place, Stream: l.Stream}, Rank: l.Rank, Prefix: l.Prefix() + " ", Text: to.palette.Output(l.Text), Open: l.Open,
		})
	}
	return m.Run(ctx)
}

// Membership is the part of this node in a job that is not scheduled.
type Membership struct {
	Process *boot.Process
	Agent   AgentConfig
	Client  *cluster.Client
	Job     *agent.Joining
	Output  func(logs.Line) // of the workers here
	// ErrorFile is as in agent.Options.
	ErrorFile func(localRank int, g ident.Generation) string
	Made      func(*agent.Agent)          // called before it runs
	Changed   func(events.NodeMembership) // called after every change; may be nil, must not block
	Ended     func(events.JobView)        // called with the end of the job; may be nil
	Err       io.Writer                   // for people
	report    *reporter
}

// Run runs the agent until the job has ended, and returns the error with the exit code of its
// outcome, or of what has ended this node's part.
func (m Membership) Run(ctx context.Context) error {
	if m.report == nil {
		m.report = &reporter{to: m.Err, job: m.Job.Job}
	}
	a, per := m.Agent, m.Job.Spec.Rendezvous.WorkersPerNode
	if a.Slots = cmp.Or(a.Slots, per); a.Slots < per {
		return errcode.Errorf(errcode.Invalid, "--slots: is %d, the job has %s on every node", a.Slots, english.Plural(per, "worker"))
	}
	m.Job.OnChange = func(n events.NodeMembership) {
		if m.Changed != nil {
			m.Changed(n)
		}
		if text := membershipText(n); text != "" {
			m.report.say("%s", text)
		}
	}
	run, err := newAgent(m.Process, a, agentOptions{join: m.Job, output: m.Output, errorFile: m.ErrorFile})
	if err != nil {
		return err
	}
	m.report.ended = m.Ended
	m.Made(run)
	if err := m.Process.WithHealth(ctx, nil, run.Run); err != nil {
		return err
	}
	return m.report.end(context.WithoutCancel(ctx), m.Client, run, errors.Is(context.Cause(ctx), boot.ErrInterrupted))
}

// reporter prints the state of the node's membership for the user.
type reporter struct {
	mu   sync.Mutex
	to   io.Writer
	job  ident.JobID
	last string

	ended func(events.JobView) // may be nil
}

func (s *reporter) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if text != s.last {
		s.last = text
		fmt.Fprintf(s.to, "%s: %s\n", s.job, escape.Text(text))
	}
}

// membershipText describes a node's membership in its job, in a sentence with numbers.
func membershipText(n events.NodeMembership) string {
	of := fmt.Sprintf("%d of %s", n.Nodes, english.Between(n.Min, n.Max, "node"))
	switch {
	case n.Membership == events.MembershipSpare:
		return fmt.Sprintf("this node is a spare: the job has its %s, and this one takes the place of one that is lost", english.Plural(n.Nodes, "node"))
	case n.Membership == events.MembershipWaiting:
		return "this node is taken in at the next commit (" + of + " in)"
	case n.Membership != events.MembershipParticipant:
		return ""
	case n.Complete:
		return fmt.Sprintf("the round is complete with %s", english.Plural(n.Nodes, "node"))
	case n.Nodes < n.Min:
		return fmt.Sprintf("waiting for %s (%s here)", english.Plural(n.Min-n.Nodes, "more node"), of)
	case n.LastCallMS > 0:
		return fmt.Sprintf("last call, %.0f s left: %s are here", n.LastCallMS/1000, of)
	}
	return ""
}

// outcomeWithin bounds the wait for the job's end after its workers on this node have ended.
const outcomeWithin = time.Minute

// end reports how the job ended for this node and returns the error with the exit code.
func (s *reporter) end(ctx context.Context, c *cluster.Client, run *agent.Agent, interrupted bool) error {
	n, entered, err := run.Membership()
	switch {
	case err != nil:
		return err
	case n.Membership == events.MembershipOver && entered:
		return s.outcome(ctx, c)
	case n.Membership == events.MembershipOver:
		return &exitcode.Error{Code: exitcode.NotAllowed, Err: fmt.Errorf("%s has ended already: give another --join-job to begin anew (%s)", s.job, n.Reason)}
	case n.Membership == events.MembershipClosed:
		return &exitcode.Error{Code: exitcode.NotAllowed, Err: fmt.Errorf("%s takes no nodes: %s", s.job, n.Reason)}
	case n.Membership == events.MembershipTimedOut:
		return &exitcode.Error{Code: exitcode.TimedOut, Err: fmt.Errorf("%s: %s", s.job, n.Reason)}
	case interrupted:
		s.say("this node has left; the job goes on without it. To end it: regroup stop %s", s.job)
		return &exitcode.Error{Code: exitcode.Interrupted}
	}
	s.say("this node has left: %s", n.Reason)
	return nil
}

// outcome waits for the end of the job and reports it as `regroup run` does.
func (s *reporter) outcome(ctx context.Context, c *cluster.Client) error {
	ctx, cancel := context.WithTimeout(ctx, outcomeWithin)
	defer cancel()
	for {
		v, err := c.Job(ctx, string(s.job))
		if err != nil {
			return err
		}
		if v.State.Terminal() {
			if v, err = c.AwaitExits(ctx, v); err != nil {
				return err
			}
			if s.ended != nil {
				s.ended(v)
			}
			now := time.Now()
			if err := screen.Final(s.to, screen.Palette{}, v, now); err != nil {
				return err
			}
			return view.Summarize(v, now).Err()
		}
		if !wait.Sleep(ctx, 100*time.Millisecond) {
			return errcode.Errorf(errcode.Unavailable, "%s is over, but the registry does not say how: see regroup status %s", s.job, s.job)
		}
	}
}
