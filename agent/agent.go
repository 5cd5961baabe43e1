// Package agent is the shell around the machine of package worker on one node: it turns launch
// events into processes, workers' calls into requests, and their results into signals, facts and
// chunks of output.
//
// One goroutine owns the machine; all others pass it inputs through a queue that never blocks, and
// perform its actions. The agent itself decides nothing: package worker decides what follows from
// an input, the rendezvous who is in a generation, and discovery whether this node is alive.
package agent

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/agent/checkpoints"
	"github.com/regroup-io/regroup/agent/logs"
	"github.com/regroup-io/regroup/agent/statedir"
	"github.com/regroup-io/regroup/agent/submitenv"
	"github.com/regroup-io/regroup/agent/tcpstore"
	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/agent/workerapi"
	"github.com/regroup-io/regroup/agent/workerenv"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spares"
	"github.com/regroup-io/regroup/internal/wait"
)

// Agent is one node's agent.
type Agent struct {
	opt      Options
	inputs   *inputs
	api      *workerapi.Server
	facts    *facts
	logs     *logs.Store
	snapshot atomic.Pointer[snapshot] // the machine's state for other goroutines
	hello    chan struct{}            // capacity 1: register again now
	spares   chan struct{}            // capacity 1: register again soon
	renew    chan struct{}            // capacity 1: a heartbeat was sent, ask for the lease
	lease    lease
	submits  submitenv.Store
	ckpts    checkpoints.Store
	unkept   sync.Once     // it was logged that jobs have no checkpoints here
	known    chan struct{} // closed once discovery has admitted the node
	member   *membership   // nil unless the agent joins a single job
	tasks    *errgroup.Group
	stopNow  chan struct{}
	state    worker.State // used only by the goroutine of own
	joins    map[ident.JobID]*gathered
	stores   map[string]*tcpstore.Server // by address; like state
	via      sync.Map                    // JobID to string: the replica of the rendezvous to be asked first
	beat     atomic.Int64                // heartbeat interval in nanoseconds that discovery asks for
	patience atomic.Int64                // request timeout in nanoseconds that discovery asks for

	gpus atomic.Pointer[[]devices.GPU] // as they were seen last

	predecessors []ident.Incarnation // of the state folder

	departing atomic.Pointer[events.Departure] // nil = no departure was announced
	departed  chan struct{}                    // closed once one was
	stepped   time.Time                        // when the machine took its newest input; of the loop alone
	announced atomic.Bool                      // discovery knows of it

	fence  atomic.Pointer[error] // why the agent was fenced; nil = it was not
	fenced chan struct{}         // closed once it was
	moved  atomic.Bool           // it was fenced by itself: its address has changed

	greeting atomic.Bool // discovery may know of this incarnation
	leaving  atomic.Bool // saying goodbye: the refusal of a later hello is expected
}

// fenceWithin is how long to wait for processes of an earlier incarnation to die.
const fenceWithin = 10 * time.Second

type snapshot struct {
	revisions map[ident.JobID]uint64
	workers   map[ident.Incarnation]worker.Worker
	spares    []spares.Kept
}

// New validates the options.
func New(o Options) (*Agent, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Incarnation == "" {
		o.Incarnation = ident.Incarnation(ulid.Make().String())
	}
	a := &Agent{
		opt: o, inputs: &inputs{wake: make(chan struct{}, 1)}, hello: make(chan struct{}, 1), spares: make(chan struct{}, 1), renew: make(chan struct{}, 1), known: make(chan struct{}), stopNow: make(chan struct{}, 1), departed: make(chan struct{}), fenced: make(chan struct{}),
		facts: newFacts(o), logs: logs.New(logs.Options{
			Node: o.Node, Incarnation: o.Incarnation, Log: o.Ports.Log, Logger: o.Logger, CallTimeout: callTimeout, Config: o.Config.Logs,
		}), joins: map[ident.JobID]*gathered{},
		stores: map[string]*tcpstore.Server{},
	}
	a.lease.a = a
	a.gpus.Store(&o.GPUs)
	a.submits.Dir = filepath.Join(o.StateDir, "submitted")
	// A folder of its own: what ended jobs have left there is removed.
	a.ckpts.Dir, a.ckpts.Space, a.ckpts.Free = filepath.Join(cmp.Or(o.Checkpoints, o.StateDir), "regroup-checkpoints"), o.CheckpointSpace, o.CheckpointFree
	if o.Join != nil {
		a.member = &membership{a: a, wake: make(chan struct{}, 1), stopNow: make(chan struct{}, 1)}
	}
	var err error
	a.api, err = workerapi.New(workerapi.Options{Socket: statedir.Socket(o.StateDir), Calls: a.calls(), Listen: o.Listen})
	if err != nil {
		return nil, errcode.Errorf(errcode.Invalid, "agent: %w", err)
	}
	var dealt []string
	if len(o.GPUs) == o.Slots {
		for _, g := range o.GPUs {
			dealt = append(dealt, g.ID)
		}
	}
	a.state = worker.New(worker.Config{
		Node: o.Node, Agent: o.Incarnation, Host: workerenv.Host{
			Advertise: o.Advertise, DataPorts: o.DataPorts, Socket: a.api.Path(), ErrorDir: filepath.Join(o.StateDir, "errors"),
			Devices: workerenv.VisibleDevices(os.LookupEnv), GPUs: dealt,
		},
	})
	a.show()
	return a, nil
}

// Incarnation returns the agent's incarnation.
func (a *Agent) Incarnation() ident.Incarnation { return a.opt.Incarnation }

// Slots returns how many workers fit on the node.
func (a *Agent) Slots() int { return a.opt.Slots }

// Socket returns the path of the worker API.
func (a *Agent) Socket() string { return a.api.Path() }

// Kill kills all workers at once while Run is stopping, for a second interrupt.
func (a *Agent) Kill() {
	wait.Notify(a.stopNow)
	if a.member != nil {
		wait.Notify(a.member.stopNow)
	}
}

// Run runs the agent until ctx ends or the node has departed. Then workers are stopped with their
// grace, facts are flushed and the agent says goodbye to discovery. When it returns, no worker and
// no goroutine is left. The error is Fenced if another agent has taken over the node's name: then
// workers are killed, and only a new incarnation may follow; see RunIncarnations.
func (a *Agent) Run(ctx context.Context) error {
	unlock, err := statedir.Lock(a.opt.StateDir)
	if err != nil {
		return err
	}
	defer unlock()
	fence, cancel := context.WithTimeout(ctx, fenceWithin)
	left, err := a.opt.Driver.Fence(fence)
	cancel()
	if err != nil {
		// A process that survives SIGKILL waits for its disk or GPU. The node is more useful with
		// it than without an agent.
		a.opt.Logger.Error("leftovers of an earlier incarnation", "node", a.opt.Node, "reason", err)
	} else if a.predecessors, err = statedir.Succeed(a.opt.StateDir, a.opt.Incarnation); err != nil {
		a.opt.Logger.Warn("the state folder does not remember this agent: its next start waits until this one counts as lost", "node", a.opt.Node, "reason", err)
	}
	a.inputs.put(worker.LeaseRenewed{Restart: time.Now(), InPlace: time.Now(), Reason: "discovery has not answered yet"})
	for _, o := range left {
		a.inputs.put(o)
	}
	// The agent's work continues after ctx until its workers have ended.
	base, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	tasks, work := errgroup.WithContext(base)
	a.tasks = tasks
	tasks.Go(func() error { return a.opt.Driver.Run(work) })
	tasks.Go(func() error { return a.api.Run(work, nil) })
	tasks.Go(func() error { return a.facts.run(work) })
	tasks.Go(func() error { return a.logs.Run(work) })
	a.listen(work)
	if a.member != nil {
		user, leave := context.WithCancel(ctx)
		inJob, out := context.WithCancel(work)
		ctx = inJob
		tasks.Go(func() error {
			select { // a departure leaves the job like an interrupt
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
		why := a.runLoop(ctx, work)
		a.releaseMasters()
		if work.Err() == nil {
			a.leave(work, why)
		}
		return nil
	})
	if err := tasks.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return errcode.Errorf(errcode.Of(err), "agent: %w", err)
	}
	return a.ended()
}

func (a *Agent) step(work context.Context, in worker.Input) {
	var acts []worker.Action
	now := time.Now()
	if x, ok := in.(reportedExit); ok {
		x.Age += now.Sub(x.at)
		in = x.ProcessExited
	}
	a.state, acts = worker.Step(a.state, in, now)
	a.stepped = now
	for _, act := range acts {
		a.do(work, act)
	}
	switch in := in.(type) {
	case worker.ProcessExited:
		a.api.Dismiss(string(in.Worker))
	case worker.ProcessFailedToStart:
		a.api.Dismiss(string(in.Worker))
	case worker.Launched:
		a.noteReplica(in.Launch)
	case worker.JoinAnswered:
		if in.Refused != "" {
			a.opt.Logger.Debug("join refused", "seq", in.Worker, "reason", in.Reason)
		}
	}
}

// show publishes a snapshot of the machine to other goroutines.
func (a *Agent) show() {
	l := &snapshot{revisions: a.state.Revisions(), spares: a.state.Spares(), workers: map[ident.Incarnation]worker.Worker{}}
	for _, w := range a.state.Workers() {
		l.workers[w.Incarnation] = w
	}
	before := a.snapshot.Swap(l)
	if before != nil && !slices.Equal(before.spares, l.spares) {
		wait.Notify(a.spares)
	}
}

// leave stores the remaining facts and says goodbye.
func (a *Agent) leave(work context.Context, why string) {
	a.logs.Seal()
	flush, cancel := context.WithTimeout(work, flushWithin)
	defer cancel()
	a.facts.drained(flush)
	a.logs.Drained(flush)
	if a.ended() != nil && !a.moved.Load() {
		return // another agent has the name: the goodbye would count as its own
	}
	if !a.greeting.Load() {
		return // the GPUs were still being measured
	}
	a.leaving.Store(true)
	leave := events.NodeLeave{Node: a.opt.Node, Incarnation: a.opt.Incarnation, Reason: why}
	if _, err := call[events.NodeWelcome](work, a, events.ServiceDiscovery, events.VerbLeave, leave, ""); err != nil {
		a.opt.Logger.Warn("goodbye was not heard: the node will count as lost", "node", a.opt.Node, "reason", err)
	}
}

// reportedExit is an exit as the driver has reported it. Its age increases while it waits for the
// machine.
type reportedExit struct {
	worker.ProcessExited
	at time.Time
}

// inputs is an unbounded FIFO whose put never blocks.
type inputs struct {
	mu    sync.Mutex
	items []worker.Input
	wake  chan struct{} // capacity 1: items were added
}

func (q *inputs) put(in worker.Input) {
	q.mu.Lock()
	q.items = append(q.items, in)
	q.mu.Unlock()
	wait.Notify(q.wake)
}

func (q *inputs) take() []worker.Input {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items = nil
	return items
}

func (q *inputs) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items) == 0
}
