package cluster

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/internal/freeport"
)

// Processes are the processes of a cluster, each in its own process group, with its own log in Dir.
type Processes struct {
	Dir string

	mu     sync.Mutex
	byName map[string]*process
	wait   sync.WaitGroup
	stop   bool
}

// Command describes how to start a process.
type Command struct {
	Name string
	Args []string // program and arguments
	Env  []string // added to the environment of this process
	// Restart is the delay after which the process is restarted, as by a service manager; 0 =
	// never.
	Restart time.Duration
}

type process struct {
	command Command
	cmd     *exec.Cmd
	done    chan struct{} // closed when this run has ended
}

// Start starts a process under a name that is unused, or whose last process has ended.
func (p *Processes) Start(c Command) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byName == nil {
		p.byName = map[string]*process{}
	}
	if old := p.byName[c.Name]; old != nil && !closed(old.done) {
		return fmt.Errorf("%s runs already", c.Name)
	}
	one := &process{command: c}
	if err := p.launch(one); err != nil {
		return err
	}
	p.byName[c.Name] = one
	return nil
}

// launch starts a run of a process; mu is held.
func (p *Processes) launch(one *process) error {
	c := one.command
	log, err := os.OpenFile(p.log(c.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(append(os.Environ(), "GORACE=halt_on_error=1 exitcode=66", "REGROUP_NATS_SYSTEM_PASSWORD=of-this-test",
		// A test does not depend on how full the disk is.
		"REGROUP_AGENT_CHECKPOINT_FREE=0",
		// Faults are intended and frequent: no node is quarantined for them unless the command says
		// so.
		"REGROUP_DISCOVERY_QUARANTINE_CHARGES=0", "REGROUP_DISCOVERY_QUARANTINE_LOSSES=0"), c.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	one.cmd, one.done = cmd, make(chan struct{})
	done := one.done
	p.wait.Go(func() {
		_ = cmd.Wait() // the reason is in its log
		close(done)
		if c.Restart > 0 {
			p.again(one, c.Restart)
		}
	})
	return nil
}

// again restarts a process that has ended, unless all are being stopped or it was restarted
// already.
func (p *Processes) again(one *process, after time.Duration) {
	<-time.After(after)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop || p.byName[one.command.Name] != one || !closed(one.done) {
		return
	}
	if err := p.launch(one); err != nil {
		fmt.Fprintln(os.Stderr, "restart:", err)
	}
}

// Names lists the processes that were started.
func (p *Processes) Names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := make([]string, 0, len(p.byName))
	for n := range p.byName {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func (p *Processes) get(name string) (pid int, done chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.byName[name]
	if one == nil {
		return 0, nil, fmt.Errorf("no process is called %s", name)
	}
	return one.cmd.Process.Pid, one.done, nil
}

// PID returns the process id of the newest run; 0 = there was none.
func (p *Processes) PID(name string) int {
	pid, _, _ := p.get(name)
	return pid
}

// Running reports whether the newest run of a process has not ended.
func (p *Processes) Running(name string) bool {
	_, done, err := p.get(name)
	return err == nil && !closed(done)
}

// Signal sends a signal to one process, not to its group: a frozen agent's workers run on.
func (p *Processes) Signal(name string, s syscall.Signal) error {
	pid, done, err := p.get(name)
	if err != nil {
		return err
	}
	if closed(done) {
		return fmt.Errorf("%s has ended", name)
	}
	if err := syscall.Kill(pid, s); err != nil {
		return fmt.Errorf("%v to %s: %w", s, name, err)
	}
	return nil
}

// Kill ends a process as a power failure would, and returns when it has ended. An automatic restart
// starts its delay now.
func (p *Processes) Kill(name string) error {
	pid, done, err := p.get(name)
	if err != nil {
		return err
	}
	if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", name, err)
	}
	<-done
	return nil
}

// Restart restarts a process that has ended, with its old data.
func (p *Processes) Restart(name string) error { return p.Replace(name, "") }

// Replace does the same with another program, for instance that of another version.
func (p *Processes) Replace(name, program string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.byName[name]
	if one == nil || !closed(one.done) {
		return fmt.Errorf("%s has not ended", name)
	}
	one.command.Args[0] = cmp.Or(program, one.command.Args[0])
	return p.launch(one)
}

// End ends a process with a signal, and returns when it has ended or ctx has.
func (p *Processes) End(ctx context.Context, name string, s syscall.Signal) error {
	if err := p.Signal(name, s); err != nil {
		return err
	}
	_, done, _ := p.get(name)
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s does not end: %w", name, context.Cause(ctx))
	}
}

// Stop stops all processes, kills the remaining ones after the limit, and returns when none is
// left.
func (p *Processes) Stop(limit time.Duration) {
	p.mu.Lock()
	p.stop = true
	all := make([]*process, 0, len(p.byName))
	for _, one := range p.byName {
		all = append(all, one)
	}
	p.mu.Unlock()
	for _, one := range all {
		if !closed(one.done) {
			_ = syscall.Kill(-one.cmd.Process.Pid, syscall.SIGTERM)
			_ = syscall.Kill(-one.cmd.Process.Pid, syscall.SIGCONT) // a stopped process ignores other signals
		}
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	for _, one := range all {
		select {
		case <-one.done:
		case <-t.C:
			for _, late := range all {
				if !closed(late.done) {
					_ = syscall.Kill(-late.cmd.Process.Pid, syscall.SIGKILL)
				}
			}
			<-one.done
		}
	}
	p.wait.Wait()
}

// Log returns the end of a process's log, at most n bytes; 0 = all of it.
func (p *Processes) Log(name string, n int) []byte {
	b, err := os.ReadFile(p.log(name))
	if err != nil {
		return nil
	}
	return b[max(0, len(b)-cmp.Or(n, len(b))):]
}

// Logs returns the ends of all logs, at most n bytes of each.
func (p *Processes) Logs(n int) string {
	var all strings.Builder
	for _, name := range p.Names() {
		fmt.Fprintf(&all, "--- %s ---\n%s\n", name, p.Log(name, n))
	}
	return all.String()
}

// Races names the processes in whose log the race detector has reported.
func (p *Processes) Races() []string {
	var found []string
	for _, name := range p.Names() {
		if bytes.Contains(p.Log(name, 0), []byte("DATA RACE")) {
			found = append(found, name)
		}
	}
	return found
}

func (p *Processes) log(name string) string { return filepath.Join(p.Dir, name+".log") }

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Output runs a command and returns what it prints; an error has what it says on standard error.
func Output(cmd *exec.Cmd) (string, error) {
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// Build builds commands of this module into dir; with the race detector if asked.
func Build(dir string, race bool, packages ...string) error {
	args := []string{"build", "-o", dir + "/"}
	if race {
		args = append(args, "-race")
	}
	for _, p := range packages {
		args = append(args, "github.com/regroup-io/regroup/"+p)
	}
	_, err := Output(exec.Command("go", args...))
	return err
}

// FreeAddress returns a loopback address with a port that was free a moment ago.
func FreeAddress() (string, error) {
	all, err := freeport.Addresses(1)
	if err != nil {
		return "", err
	}
	return all[0], nil
}

// Usage is what processes take together.
type Usage struct {
	CPU       time.Duration // of their own code and of the kernel's so far, in ticks of 10 ms
	Now, Most float64       // resident memory in MiB, and the sum of the most that each ever had
}

// Used returns the usage of processes.
func Used(pids ...int) (u Usage, err error) {
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return u, err
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		for _, ticks := range strings.Fields(rest)[11:13] {
			n, err := strconv.Atoi(ticks)
			if err != nil {
				return u, err
			}
			u.CPU += time.Duration(n) * 10 * time.Millisecond
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return u, err
		}
		for line := range strings.Lines(string(status)) {
			for name, into := range map[string]*float64{"VmRSS:": &u.Now, "VmHWM:": &u.Most} {
				if rest, ok := strings.CutPrefix(line, name); ok {
					kib, err := strconv.Atoi(strings.Fields(rest)[0])
					if err != nil {
						return u, err
					}
					*into += float64(kib) / 1024
				}
			}
		}
	}
	return u, nil
}

// Dialog is a program that reads requests as lines, and answers each with a line.
type Dialog struct {
	*exec.Cmd
	In    io.WriteCloser
	lines *bufio.Scanner
}

// Talk starts a program.
func Talk(cmd *exec.Cmd) (*Dialog, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	return &Dialog{cmd, in, lines}, cmd.Start()
}

// Tell sends the program a line of words.
func (d *Dialog) Tell(words ...any) error {
	_, err := fmt.Fprintln(d.In, words...)
	return err
}

// Line returns the next line, or io.EOF.
func (d *Dialog) Line() (string, error) {
	if !d.lines.Scan() {
		return "", errors.Join(d.lines.Err(), io.EOF)
	}
	return d.lines.Text(), nil
}

// Expect reads on until a line begins with a word, and returns what follows. The word "failed"
// begins an error.
func (d *Dialog) Expect(ctx context.Context, word string) (string, error) {
	for {
		line, err := d.Line()
		if err != nil {
			return "", fmt.Errorf("%s has ended before %q: %w", d.Path, word, errors.Join(context.Cause(ctx), err))
		}
		first, rest, _ := strings.Cut(line, " ")
		switch first {
		case word:
			return rest, nil
		case "failed":
			return "", errors.New(rest)
		}
	}
}

// End ends the input, and waits for the program.
func (d *Dialog) End() error { return errors.Join(d.In.Close(), d.Wait()) }
