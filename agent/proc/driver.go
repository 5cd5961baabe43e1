// Package proc runs workers as processes of this machine (Linux).
//
// Each worker leads a process group. Signals and kills go to the whole group, and when the leader
// has ended the rest of the group is killed, so that a worker that forks leaves no process.
// The kernel kills a worker when its agent dies (PR_SET_PDEATHSIG). Processes that escape both
// are found, when the worker ends or the agent restarts, by files written before each start, by
// the worker's incarnation in their environment, and by a mark that all children inherit (package
// internal/spawn). Package worker decides when to start or stop.
package proc

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/agent/cgroup"
	"github.com/regroup-io/regroup/agent/procfs"
	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/internal/spawn"
)

// Options of a Driver.
type Options struct {
	StateDir string   // where a file per process is kept; created if absent
	Environ  []string // what workers inherit, before filtering; nil = this process's environment
	// AllowSecrets are names of variables in Environ that jobs may take as secrets. No other job
	// inherits them.
	AllowSecrets []string
	CGroups      string // mount point of cgroups; empty = /sys/fs/cgroup
	Proc         string // mount point of procfs; empty = /proc
	// Guard returns the command of a second process, which calls Driver.Guard with its standard
	// input; nil = nothing ends workers while this process is frozen.
	Guard func(stateDir string) *exec.Cmd
}

// Driver starts, signals and watches processes. All methods are safe for concurrent use.
type Driver struct {
	opt     Options
	spawn   chan func()
	ended   chan struct{} // closed when Run has ended
	proc    procfs.Dir
	oom     *cgroup.OOMCounter
	groups  cgroup.Hierarchies
	shared  sharedMemories
	mu      sync.Mutex
	secrets map[string]string // values of the allowed variables
	live    map[ident.Incarnation]*process
	spares  map[ident.JobID]*spares
	over    bool
	waits   sync.WaitGroup
	guard   guardPipe
}

// New validates the options.
func New(o Options) (*Driver, error) {
	if o.StateDir == "" {
		return nil, errcode.Errorf(errcode.Invalid, "proc: StateDir is empty: give a directory for the files of running workers")
	}
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	o.CGroups = cmp.Or(o.CGroups, "/sys/fs/cgroup")
	o.Proc = cmp.Or(o.Proc, "/proc")
	inherited, secrets := withhold(o.Environ, o.AllowSecrets)
	o.Environ = inherited
	return &Driver{
		opt: o, secrets: secrets, spawn: make(chan func()), ended: make(chan struct{}), live: map[ident.Incarnation]*process{},
		spares: map[ident.JobID]*spares{},
		proc:   procfs.Dir(o.Proc),
		groups: cgroup.Find(o.CGroups, o.Proc),
		oom:    cgroup.NewOOMCounter(o.CGroups, o.Proc),
	}, nil
}

// Run runs until ctx ends, then kills the remaining processes and returns when all have ended.
func (d *Driver) Run(ctx context.Context) error {
	// PR_SET_PDEATHSIG fires when the forking thread ends, not the process. Go ends idle threads,
	// so all workers are forked by this one thread, which is never released.
	runtime.LockOSThread()
	defer close(d.ended)
	// Workers inherit it from this thread: set-uid programs cannot give them another user.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return errcode.Errorf(errcode.Internal, "proc: no_new_privs: %w", err)
	}
	if err := os.MkdirAll(d.dir(), 0o700); err != nil {
		return errcode.Errorf(errcode.Internal, "proc: state directory: %w", err)
	}
	guarding, endGuard := context.WithCancel(context.WithoutCancel(ctx))
	var guard sync.WaitGroup
	defer guard.Wait()
	defer endGuard()
	if d.opt.Guard != nil {
		begun, started := context.WithCancel(guarding)
		guard.Go(func() { d.keepGuard(guarding, started) })
		<-begun.Done() // no worker runs without it
	}
	for {
		select {
		case start := <-d.spawn:
			start()
		case <-ctx.Done():
			d.mu.Lock()
			d.over = true
			for _, p := range d.live {
				p.kill()
			}
			for _, s := range d.spares {
				for _, sp := range s.idle {
					sp.p.kill()
				}
			}
			d.mu.Unlock()
			d.waits.Wait()
			return nil
		}
	}
}

// Start implements agent.Driver. It calls report and onOutput on goroutines of the driver: they
// must return quickly. Start itself does not block while Run is running.
func (d *Driver) Start(s worker.StartProcess, report func(worker.Input), onOutput func(stream string, lines []output.Line)) {
	start := func() {
		p, err := d.fork(s, report, onOutput)
		if err != nil {
			code := 126
			if no := (*StartError)(nil); errors.As(err, &no) {
				code = no.ExitCode
			}
			report(worker.ProcessFailedToStart{Worker: s.Worker, ExitCode: code, Detail: err.Error(), NodeFault: spawn.Exhausted(err)})
			return
		}
		report(worker.ProcessStarted{Worker: s.Worker, PID: p.pid})
		close(p.announced)
	}
	select {
	case d.spawn <- start:
	case <-d.ended:
		report(worker.ProcessFailedToStart{Worker: s.Worker, ExitCode: 126, Detail: errEnding.Error()})
	}
}

// finish waits for the end of a process, and for that of all that it has started.
func (d *Driver) finish(p *process) {
	x := p.wait()
	d.mu.Lock()
	p.over = true
	x.Worker = p.worker
	if p.worker == "" {
		d.spareEnded(p, x)
	}
	d.mu.Unlock()
	if p.worker != "" {
		<-p.announced
		p.report(x)
	}
	d.mu.Lock()
	delete(d.live, p.worker)
	d.mu.Unlock()
	p.confinement.end()
	d.sweepAll(processSet{[]ident.Incarnation{p.worker, p.firstID}, []uint64{p.mark}})
	_ = os.Remove(d.file(p.firstID))
	if p.worker != "" {
		_ = os.Remove(d.file(p.worker))
	}
}

// Signal implements agent.Driver.
func (d *Driver) Signal(id ident.Incarnation, name string) error {
	sig := unix.SignalNum(name)
	if sig == 0 {
		return errcode.Errorf(errcode.Invalid, "proc: %q is no signal: write SIGTERM, SIGINT ...", name)
	}
	if p := d.find(id); p != nil {
		p.signal(sig)
	}
	return nil
}

// Kill kills a worker's process group.
func (d *Driver) Kill(id ident.Incarnation) {
	if p := d.find(id); p != nil {
		p.kill()
	}
}

// Conceal implements agent.Driver.
func (d *Driver) Conceal(id ident.Incarnation, text string) string {
	if p := d.find(id); p != nil {
		return p.capture.Text(text)
	}
	return text
}

func (d *Driver) find(id ident.Incarnation) *process {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.live[id]
}
