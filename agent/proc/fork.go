package proc

import (
	"os"
	"os/exec"
	"path/filepath"

	"github.com/regroup-io/regroup/agent/capture"
	"github.com/regroup-io/regroup/agent/cgroup"
	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/spawn"
)

// errEnding: no process is started any more.
var errEnding = &StartError{ExitCode: 126, Detail: "the agent is ending"}

// fork starts a worker's process, or makes a spare its process. It must be called on the locked
// thread.
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
	mask := capture.NewMask(secrets)
	s.Dir = homeOf(s.Dir, s.Account)
	if p := d.takeSpare(s, mask, report, onOutput); p != nil {
		d.remember(s, p)
		return p, nil
	}
	env := environment(d.opt.Environ, s)
	path, err := lookup(s.Command, s.Dir, env)
	if err != nil {
		return nil, err
	}
	p := &process{worker: s.Worker, firstID: s.Worker, dir: s.Dir, report: report, cmd: &exec.Cmd{
		Path: path, Args: s.Command, Env: env, Dir: s.Dir, // a nil Stdin is /dev/null
	}}
	return p, d.launch(s, p, mask, onOutput, func(start func() error) error {
		p.oomBefore = d.oom.Read()
		if err := start(); err != nil {
			return startError(err, s)
		}
		d.live[s.Worker] = p
		return nil
	})
}

// launch starts a process with its output, its limits and its mark. admit calls start, unless the
// process is not wanted, and registers it; the lock is held meanwhile. It must be called on the
// locked thread.
func (d *Driver) launch(s worker.StartProcess, p *process, mask *capture.Mask, onOutput func(string, []output.Line), admit func(start func() error) error) (err error) {
	p.d, p.announced, p.cmd.SysProcAttr = d, make(chan struct{}), attributes(s.Account)
	if p.confinement, err = d.confine(s); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			p.confinement.end()
		}
	}()
	if p.capture, err = capture.New(onOutput); err != nil {
		return err
	}
	p.capture.Conceal(mask)
	p.cmd.Stdout, p.cmd.Stderr = p.capture.Files()
	if another(s.Account) {
		err = p.capture.Chown(int(s.Account.UID), int(s.Account.GID))
	}
	if err == nil {
		// Before it runs: an agent that is killed meanwhile leaves none without a record.
		p.mark = spawn.Mark()
		d.remember(s, p)
		err = d.admit(func() error {
			return admit(func() error {
				err := p.confinement.start(p.cmd, p.mark)
				if err == nil {
					p.pid = p.cmd.Process.Pid
				}
				return err
			})
		})
	}
	if err != nil {
		_ = os.Remove(d.file(s.Worker))
		p.capture.Abort()
		return err
	}
	p.capture.Begin(&d.waits)
	d.remember(s, p)
	d.waits.Go(func() { d.finish(p) })
	return nil
}

// admit calls start with the lock, until the agent ends.
func (d *Driver) admit(start func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return errEnding
	}
	return start()
}

// confinement is what limits a process and holds all that it starts. The zero value is none.
type confinement struct {
	group *cgroup.Group
	shm   *memory // nil = the /dev/shm of the node
}

// confine makes the confinement of a worker that has limits, or that is another user: what it
// starts cannot leave the group. Others have marks alone, see spawn. It must be called on the
// locked thread.
func (d *Driver) confine(s worker.StartProcess) (c confinement, err error) {
	if s.Limits == (spec.ProcessLimits{}) && !another(s.Account) {
		return c, nil
	}
	if c.group, err = d.groups.Create(s.Limits); err == nil && s.Limits.Shm > 0 {
		c.shm, err = d.shared.take(s.Job, s.Limits.Shm)
	}
	if err != nil {
		c.end()
		return c, &StartError{ExitCode: 126, Detail: err.Error()}
	}
	return c, nil
}

// start starts a marked process. It must be called on the locked thread.
func (c confinement) start(cmd *exec.Cmd, mark uint64) error {
	err := c.group.Start(cmd.SysProcAttr, func() error {
		return c.shm.start(func() error { return spawn.StartMarked(cmd, mark) })
	})
	if err != nil && cmd.Process != nil { // it runs, and the thread does not come back
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return err
}

func (c confinement) end() {
	c.group.End()
	c.shm.leave()
}
