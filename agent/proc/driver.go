// Package proc runs workers as processes of this machine (Linux).
//
// Each worker leads a process group. Signals and kills go to the whole group, and when the leader
// has ended the rest of the group is killed, so that a worker that forks leaves no process behind.
// The kernel kills a worker when its agent dies (PR_SET_PDEATHSIG). Processes that escape all this
// are found, when the worker ends or the agent restarts, by the files that this package keeps, by
// the worker's incarnation in their environment, and by a mark that all children inherit (see
// spawn). Package worker decides when to start or stop.
package proc

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/events/spec"
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
	oom     oomCounter
	groups  hierarchies
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
		groups: findHierarchies(o.CGroups, o.Proc),
		oom:    oomCounter{files: oomFiles(o.CGroups, o.Proc)},
	}, nil
}

// Run runs until ctx ends, then kills the remaining processes and returns when all are gone.
func (d *Driver) Run(ctx context.Context) error {
	// PR_SET_PDEATHSIG fires when the forking thread ends, not the process. Go ends idle threads,
	// so all workers are forked by this one thread, which is never released.
	runtime.LockOSThread()
	defer close(d.ended)
	// Workers inherit it from this thread: a program that is set-uid gives them no other user.
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
		guard.Go(func() { d.keepGuard(guarding) })
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

// Start implements agent.Driver. It calls report and said from goroutines of the driver, which
// they must not block for long. Start itself does not block while Run is running.
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
		report(worker.ProcessFailedToStart{Worker: s.Worker, ExitCode: 126, Detail: "the agent is ending"})
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
	p.group.end()
	d.sweepAll(processSet{ids: map[ident.Incarnation]bool{cmp.Or(p.worker, p.firstID): true, p.firstID: true}, marks: marks(p.mark)})
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
		return p.capture.mask.Load().text(text)
	}
	return text
}

func (d *Driver) find(id ident.Incarnation) *process {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.live[id]
}

// groupFor makes the control group of a worker that has limits, or that is another user: what it
// starts cannot leave the group. Others have marks alone, see spawn. It must be called on the
// locked thread.
func (d *Driver) groupFor(s worker.StartProcess) (*group, error) {
	if s.Limits == (spec.ProcessLimits{}) && !another(s.Account) {
		return nil, nil
	}
	g, err := d.groups.create(s.Limits)
	if err != nil || s.Limits.Shm == 0 {
		return g, err
	}
	if g == nil {
		g = &group{}
	}
	if g.shm, err = d.shared.take(s.Job, s.Limits.Shm); err != nil {
		g.end()
		return nil, err
	}
	return g, nil
}

// startIn starts a marked process in a group.
func startIn(g *group, cmd *exec.Cmd) (mark uint64, err error) {
	err = g.start(cmd, func() error {
		mark, err = spawn.StartMarked(cmd)
		return err
	})
	if err != nil && cmd.Process != nil { // it runs, and the thread does not come back
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return mark, err
}

// fork must be called on the locked thread.
func (d *Driver) fork(s worker.StartProcess, report func(worker.Input), onOutput func(string, []output.Line)) (*process, error) {
	if file := s.Env["TORCHELASTIC_ERROR_FILE"]; file != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return nil, err
		}
	}
	secrets, err := d.readSecrets(s)
	if err != nil {
		return nil, err
	}
	s.Env = withSecrets(s.Env, secrets)
	hide := newMask(secrets)
	s.Dir = homeOf(s.Dir, s.Account)
	if p := d.takeSpare(s, hide, report, onOutput); p != nil {
		d.remember(s, p)
		return p, nil
	}
	env := environment(d.opt.Environ, s)
	path, err := lookup(s.Command, s.Dir, env)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path: path, Args: s.Command, Env: env, Dir: s.Dir, // a nil Stdin is /dev/null
		SysProcAttr: attributes(s.Account),
	}
	g, err := d.groupFor(s)
	if err != nil {
		return nil, err
	}
	c, err := newCapture(onOutput, s.Account)
	if err != nil {
		g.end()
		return nil, err
	}
	c.mask.Store(hide)
	cmd.Stdout, cmd.Stderr = c.out.w, c.err.w
	d.mu.Lock()
	if d.over {
		d.mu.Unlock()
		c.abort()
		g.end()
		return nil, &StartError{ExitCode: 126, Detail: "the agent is ending"}
	}
	before := d.oom.read()
	m, err := startIn(g, cmd)
	if err != nil {
		d.mu.Unlock()
		c.abort()
		g.end()
		return nil, startError(err, s)
	}
	p := &process{
		d: d, worker: s.Worker, firstID: s.Worker, dir: s.Dir, cmd: cmd, pid: cmd.Process.Pid, capture: c, oomBefore: before, mark: m, group: g, report: report,
		announced: make(chan struct{}),
	}
	d.live[s.Worker] = p
	d.mu.Unlock()
	c.begin(&d.waits)
	d.remember(s, p)
	d.waits.Go(func() { d.finish(p) })
	return p, nil
}
