package agent

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/agent/workerapi"
	"github.com/regroup-io/regroup/events"
)

// Agent is one node's agent.
type Agent struct {
	opt      Options
	inbox    *inbox
	api      *workerapi.Server
	facts    *facts
	logs     *logs
	look     atomic.Pointer[look] // what the machine's owner lets others see
	hello    chan struct{}        // has one place: register again now
	known    chan struct{}        // closed once discovery has taken the node in
	member   *membership          // nil unless the agent has come for one job
	tasks    *errgroup.Group
	hurry    chan struct{}
	state    worker.State // the owner's
	joins    map[events.JobID]*gathered
	via      sync.Map     // of JobID: the replica of the rendezvous that is asked first, a string
	beat     atomic.Int64 // nanoseconds between heartbeats that discovery asks for
	patience atomic.Int64 // nanoseconds for an answer that it asks for

	departing atomic.Pointer[events.Departure] // nil = it stays
	departed  chan struct{}                    // closed once it is not
	announced atomic.Bool                      // discovery knows

	fence  atomic.Pointer[error] // why it was fenced; nil = it was not
	fenced chan struct{}         // closed once it was

	leaving atomic.Bool // goodbye is being said: a hello that comes later is refused, which means nothing
}

// fenceWithin bounds the wait for processes of an earlier life to die.
const fenceWithin = 10 * time.Second

// look is a picture of the machine.
type look struct {
	revisions map[events.JobID]uint64
	workers   map[events.Incarnation]worker.Worker
}

// New checks the options.
func New(o Options) (*Agent, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Incarnation == "" {
		o.Incarnation = events.Incarnation(ulid.Make().String())
	}
	a := &Agent{
		opt: o, inbox: newQueue[worker.Input](), hello: make(chan struct{}, 1), known: make(chan struct{}), hurry: make(chan struct{}, 1), departed: make(chan struct{}), fenced: make(chan struct{}),
		facts: newFacts(o), logs: newLogs(o), joins: map[events.JobID]*gathered{},
	}
	if o.Join != nil {
		a.member = newMembership(a)
	}
	var err error
	a.api, err = workerapi.New(workerapi.Options{Socket: filepath.Join(o.StateDir, "agent.sock"), Calls: a.calls(), Listen: o.Listen})
	if err != nil {
		return nil, events.Errorf(events.Invalid, "agent: %w", err)
	}
	a.state = worker.New(worker.Config{
		Node: o.Node, Agent: o.Incarnation, Advertise: o.Advertise, DataPorts: o.DataPorts, Socket: a.api.Path(),
		ErrorDir: filepath.Join(o.StateDir, "errors"),
	})
	a.show()
	return a, nil
}

// Incarnation is this life of the agent.
func (a *Agent) Incarnation() events.Incarnation { return a.opt.Incarnation }

// Socket is the path of the worker API.
func (a *Agent) Socket() string { return a.api.Path() }

// Kill ends all workers at once when Run is already stopping: for a second interrupt of an
// impatient user.
func (a *Agent) Kill() {
	select {
	case a.hurry <- struct{}{}:
	default:
	}
	if a.member != nil {
		a.member.nudgeLeave()
	}
}

// Run does the agent's work until ctx ends or the node has departed. Then workers are stopped with
// their grace, facts are flushed and discovery is told goodbye. When it returns, no worker and no
// goroutine is left. It is Fenced if another agent has taken the node's name meanwhile: then
// workers are killed, and only a new life may follow; see Lives.
func (a *Agent) Run(ctx context.Context) error {
	unlock, err := lock(a.opt.StateDir)
	if err != nil {
		return err
	}
	defer unlock()
	fence, cancel := context.WithTimeout(ctx, fenceWithin)
	left, err := a.opt.Driver.Fence(fence)
	cancel()
	if err != nil {
		// A process that even SIGKILL does not end waits for its disk or GPU. The node is of more
		// use with it than without us.
		a.opt.Logger.Error("leftovers of an earlier life", "node", a.opt.Node, "reason", err)
	}
	for _, o := range left {
		a.inbox.put(o)
	}
	// What the agent does outlives ctx, until its workers have ended.
	base, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	tasks, work := errgroup.WithContext(base)
	a.tasks = tasks
	tasks.Go(func() error { return a.opt.Driver.Run(work) })
	tasks.Go(func() error { return a.api.Run(work, nil) })
	tasks.Go(func() error { return a.facts.run(work) })
	tasks.Go(func() error { return a.logs.run(work) })
	a.listen(work)
	if a.member != nil {
		user, leave := context.WithCancel(ctx)
		inJob, out := context.WithCancel(work)
		ctx = inJob
		tasks.Go(func() error {
			select { // whoever departs leaves the job as one who is interrupted
			case <-a.departed:
				leave()
			case <-user.Done():
			case <-work.Done():
			}
			return nil
		})
		tasks.Go(func() error {
			defer out()
			defer leave()
			a.member.run(user, work)
			return nil
		})
	}
	a.notices(work)
	tasks.Go(func() error {
		defer end()
		why := a.own(ctx, work)
		if work.Err() == nil {
			a.leave(work, why)
		}
		return nil
	})
	if err := tasks.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return events.Errorf(events.CodeOf(err), "agent: %w", err)
	}
	return a.ended()
}

// step lets the machine decide and does what it says.
func (a *Agent) step(work context.Context, in worker.Input) {
	var acts []worker.Action
	a.state, acts = worker.Step(a.state, in, time.Now())
	for _, act := range acts {
		a.do(work, act)
	}
	switch in := in.(type) {
	case worker.ProcessExited:
		a.api.Dismiss(string(in.Worker))
	case worker.ProcessFailedToStart:
		a.api.Dismiss(string(in.Worker))
	case worker.Launched:
		a.told(in.Launch)
	case worker.JoinAnswered:
		if in.Refused != "" {
			a.opt.Logger.Debug("join refused", "seq", in.Worker, "reason", in.Reason)
		}
	}
}

// show lets the other goroutines see the machine as it is now.
func (a *Agent) show() {
	l := &look{revisions: a.state.Revisions(), workers: map[events.Incarnation]worker.Worker{}}
	for _, w := range a.state.Workers() {
		l.workers[w.Incarnation] = w
	}
	a.look.Store(l)
}

// leave stores what is still to be told and says goodbye.
func (a *Agent) leave(work context.Context, why string) {
	a.logs.seal()
	flush, cancel := context.WithTimeout(work, a.opt.Config.FlushWithin)
	defer cancel()
	a.facts.drained(flush)
	a.logs.drained(flush)
	if a.ended() != nil {
		return // the name is another's: goodbye would be his
	}
	a.leaving.Store(true)
	bye := events.NodeLeave{Node: a.opt.Node, Incarnation: a.opt.Incarnation, Reason: why}
	if _, err := call[events.NodeWelcome](work, a, events.ServiceDiscovery, events.VerbLeave, bye, ""); err != nil {
		a.opt.Logger.Warn("goodbye was not heard: the node will count as lost", "node", a.opt.Node, "reason", err)
	}
}
