package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/agent/logs"
	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/figures"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/output"
)

// Driver runs processes. Package proc implements it.
type Driver interface {
	// Fence kills what an earlier incarnation of this agent has left running, and returns it. It is
	// called before Run.
	Fence(ctx context.Context) ([]worker.Orphaned, error)
	// Run runs until ctx ends, then kills the remaining processes.
	Run(ctx context.Context) error
	// Lease tells until when processes may run whatever becomes of this agent: those of recovery by
	// restart, and those of in-process recovery. A driver that can guard them ends them then.
	Lease(restart, inPlace time.Time)
	// Conceal replaces the values of a worker's secrets in a text, until its ProcessExited is
	// reported.
	Conceal(id ident.Incarnation, text string) string
	Processes
}

// Processes are those of a Driver.
type Processes interface {
	// Start starts a process. report receives ProcessStarted and later ProcessExited, or
	// ProcessFailedToStart; onOutput receives lines of "stdout" and "stderr".
	Start(p worker.StartProcess, report func(worker.Input), onOutput func(stream string, lines []output.Line))
	// Signal sends a signal by name to a worker's process group; if that has ended it does nothing.
	Signal(id ident.Incarnation, name string) error
	// Kill kills a worker's process group.
	Kill(id ident.Incarnation)
	// KeepSpares has so many spares of a job kept, of which Start takes one. changed receives how
	// many are ready, whenever that changes, and what is wrong with one; one call at a time.
	KeepSpares(k worker.KeepSpares, changed func(worker.SparesKept))
	// Examine looks for a short time whether a worker is certain to end, and if so, report receives
	// ProcessDying before its ProcessExited.
	Examine(id ident.Incarnation)
}

// Config is the configuration of an agent.
type Config struct {
	Heartbeat time.Duration // interval of heartbeats; if too long, discovery suspects the node
	Logs      logs.Config   // of workers' output
	// DepartWithin is how long the work may take to move away when the agent is stopped, before
	// workers are stopped; 0 = no time.
	DepartWithin time.Duration
	PreemptFile  string        // a file whose appearance announces the node's end; empty = none
	PreemptURL   string        // answers 2xx once the node's end is announced; empty = none
	PreemptEvery time.Duration // interval of checks of both
}

const (
	helloEvery  = 10 * time.Second // interval of registrations
	callTimeout = 2 * time.Second  // timeout of one request to a service
	stopWithin  = 35 * time.Second // until workers of an ending agent are killed, whatever their grace
	flushWithin = 5 * time.Second  // until an ending agent drops facts that cannot be stored
)

// Options of an Agent.
type Options struct {
	Node        ident.NodeID
	Incarnation ident.Incarnation // empty = a new one
	Slots       int
	GPUs        []devices.GPU // that workers may use; if there is one for each slot, they see those of their job alone
	// WatchGPUs calls changed with the GPUs when their state was seen, until ctx ends; fault: one
	// has shown a fault. nil = they are not watched.
	WatchGPUs func(ctx context.Context, changed func(gpus []devices.GPU, fault bool))
	Advertise string // data-plane host that peers can reach
	Version   string // of this program, for people
	// Preflight measures the GPUs before the node offers slots; nil = nothing is measured. What
	// keeps it from measuring is in its result: the node is used nevertheless.
	Preflight func(context.Context) figures.Preflight
	// Reachable returns why peers cannot reach Advertise any more; nil = they can. It is asked
	// whenever the connection to the broker has come back. May be nil.
	Reachable   func() error
	DataPorts   string // low-high; empty = any
	DefaultUser string // of workers whose job names none, like spec.Processes.User; empty = this process's
	// Groups that jobs may name for users that are not in them, beside a DefaultUser.
	AllowGroups []string
	StateDir    string // socket, error files and the driver's files
	// Checkpoints is where there is a folder regroup-checkpoints, with those of jobs that recover
	// in the process and name none; empty = StateDir, which other users cannot reach. They take at
	// most CheckpointSpace bytes together (0 = none are made), and leave CheckpointFree bytes of
	// the disk free, at most a tenth of it.
	Checkpoints     string
	CheckpointSpace int64
	CheckpointFree  int64
	Ports           broker.Ports
	Driver          Driver
	Join            *Joining                                                        // nil = work comes from the scheduler
	Config          Config                                                          // zero fields mean the defaults, which suit a cluster on one site
	Output          func(logs.Line)                                                 // may be nil; must not block
	ErrorFile       func(localRank int, g ident.Generation) string                  // where a worker's error file is kept, "" = nowhere; may be nil
	Reported        func(events.Progress)                                           // what a worker reports; may be nil; must not block
	Observe         func(events.Span)                                               // may be nil; must not block
	Logger          *slog.Logger                                                    // nil = none
	Listen          func(ctx context.Context, path string) (net.Listener, error)    // opens the worker API; nil = Unix socket
	ListenTCP       func(ctx context.Context, address string) (net.Listener, error) // opens a store of torch.distributed; nil = net's
}

// check sets defaults and returns all errors of the options.
func (o *Options) check() error {
	var bad []string
	need := func(ok bool, what string) {
		if !ok {
			bad = append(bad, what)
		}
	}
	if err := o.Node.Check(); err != nil {
		bad = append(bad, err.Error())
	}
	need(o.Slots > 0, "slots must be at least 1")
	need(o.Slots <= limits.Slots.Max, fmt.Sprintf("slots are %d, at most %d are allowed (limit %s)", o.Slots, limits.Slots.Max, limits.Slots.Name))
	need(o.Advertise != "", "advertise is empty: give the host that peers can reach")
	need(o.StateDir != "", "the state directory is not given")
	need(o.Driver != nil, "the driver is not given")
	need(o.Ports.Log != nil && o.Ports.Calls != nil && o.Ports.Signals != nil && o.Ports.Links != nil, "the ports are not given")
	if j := o.Join; j != nil {
		need(j.Job.Check() == nil && j.Spec.SelfRegistered(), "the job to join is not one whose nodes come by themselves")
	}
	if _, err := o.account(""); err != nil {
		bad = append(bad, err.Error())
	}
	if _, _, err := portRange(o.DataPorts); err != nil {
		bad = append(bad, err.Error())
	}
	if len(bad) > 0 {
		return errcode.Errorf(errcode.Invalid, "agent: %s", strings.Join(bad, "; "))
	}
	c := &o.Config
	c.Heartbeat = cmp.Or(c.Heartbeat, 500*time.Millisecond)
	c.PreemptEvery = cmp.Or(c.PreemptEvery, time.Second)
	if o.Output == nil {
		o.Output = func(logs.Line) {}
	}
	if o.Reported == nil {
		o.Reported = func(events.Progress) {}
	}
	if o.Observe == nil {
		o.Observe = func(events.Span) {}
	}
	if o.ListenTCP == nil {
		o.ListenTCP = func(ctx context.Context, address string) (net.Listener, error) {
			return (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		}
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return nil
}

func portRange(s string) (low, high int, err error) {
	if s == "" {
		return 0, 0, nil
	}
	a, b, ok := strings.Cut(s, "-")
	low, err1 := strconv.Atoi(a)
	high, err2 := strconv.Atoi(b)
	if !ok || err1 != nil || err2 != nil || low < 1 || high > 65535 || low > high {
		return 0, 0, fmt.Errorf("data ports %q: write low-high, such as 29400-29500", s)
	}
	return low, high, nil
}
