package proc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/spawn"
)

// The guard is a second process of the agent's program. It ends what the workers of an agent that
// was killed have left, and the workers of one that is frozen when their lease is over: the kernel
// ends only a worker whose agent has died. It gets the times from the agent through a pipe, and
// reads what runs from the records of the driver.

// guarded is a line of the pipe: until when processes may run, by the clock of the machine since
// its boot, which is the same for all processes and does not stand still while one is frozen.
type guarded struct {
	Restart int64 `json:"restart"` // ns
	InPlace int64 `json:"in_place"`
}

// guardSlack is how much later than the agent the guard ends processes: what the agent ends itself
// it can explain.
const guardSlack = 100 * time.Millisecond

// guardAgain is the pause before a guard that has died is replaced.
const guardAgain = 100 * time.Millisecond

// sinceBoot returns the time since the start of the machine.
func sinceBoot() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, err
	}
	return time.Duration(t.Nano()), nil
}

// Lease implements agent.Driver: it passes the times to the guard, if there is one.
func (d *Driver) Lease(restart, inPlace time.Time) {
	g := &d.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	boot, err := sinceBoot()
	if err != nil {
		return
	}
	now := time.Now()
	line := guarded{Restart: int64(boot + restart.Sub(now)), InPlace: int64(boot + inPlace.Sub(now))}
	b, err := json.Marshal(line)
	if err != nil {
		return
	}
	g.last = append(b, '\n')
	g.send()
}

// guardPipe is the agent's side.
type guardPipe struct {
	mu   sync.Mutex
	pipe *os.File // nil = it does not run
	last []byte   // the newest line, which a new guard gets first
}

// send passes the newest line on, unless the guard has not read the last ones: then it has an older
// one, and ends processes too early rather than too late.
func (g *guardPipe) send() {
	if g.pipe != nil && len(g.last) > 0 {
		_ = g.pipe.SetWriteDeadline(time.Now().Add(time.Millisecond))
		_, _ = g.pipe.Write(g.last)
	}
}

// keepGuard runs the guard until ctx ends, and a new one if it dies. It calls started when one runs
// or cannot be started.
func (d *Driver) keepGuard(ctx context.Context, started func()) {
	for ctx.Err() == nil {
		_ = d.runGuard(ctx, started)
		select {
		case <-time.After(guardAgain):
		case <-ctx.Done():
		}
	}
}

func (d *Driver) runGuard(ctx context.Context, started func()) error {
	defer started()
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer write.Close()
	cmd := d.opt.Guard(d.opt.StateDir)
	cmd.Stdin, cmd.Dir = read, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is handled by the agent
	err = spawn.Start(cmd)
	_ = read.Close()
	if err != nil {
		return err
	}
	d.guard.mu.Lock()
	d.guard.pipe = write
	d.guard.send()
	d.guard.mu.Unlock()
	started()
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // the driver has ended all processes
	defer stop()
	err = cmd.Wait()
	d.guard.mu.Lock()
	d.guard.pipe = nil
	d.guard.mu.Unlock()
	return err
}

// Guard is the second process: it guards the processes whose records are in the state folder and
// that the agent of this process id has started, until the pipe ends with that agent, and then ends
// them all.
func (d *Driver) Guard(ctx context.Context, pipe *os.File, agent int) error {
	ours := func(r record) bool { return r.Agent == agent }
	lines := &lineReader{pipe: pipe, r: bufio.NewReader(pipe)}
	var now guarded
	for {
		b, err := lines.next(untilEnd(now))
		switch {
		case err == nil:
			if err := json.Unmarshal(b, &now); err != nil {
				return errcode.Errorf(errcode.Internal, "proc: what the agent tells its guard: %w", err)
			}
		case errors.Is(err, os.ErrDeadlineExceeded):
			d.endOverdue(ctx, now, ours)
		default: // the agent has ended
			_, _, err := d.killLeft(ctx, ours)
			return err
		}
	}
}

// lineReader reads lines with a deadline for each.
type lineReader struct {
	pipe *os.File
	r    *bufio.Reader
	part []byte
}

func (l *lineReader) next(within time.Duration) ([]byte, error) {
	var by time.Time
	if within > 0 {
		by = time.Now().Add(within)
	}
	if err := l.pipe.SetReadDeadline(by); err != nil {
		return nil, err
	}
	more, err := l.r.ReadBytes('\n')
	l.part = append(l.part, more...)
	if err != nil {
		return nil, err
	}
	line := l.part
	l.part = nil
	return line, nil
}

// overdueEvery is how often the guard ends what has no lease.
const overdueEvery = 50 * time.Millisecond

// untilEnd returns how long the guard may wait for the next line; 0 = for ever.
func untilEnd(l guarded) time.Duration {
	if l.Restart == 0 {
		return 0
	}
	boot, err := sinceBoot()
	if err != nil {
		return overdueEvery
	}
	return max(time.Duration(l.Restart)+guardSlack-boot, overdueEvery)
}

// endOverdue ends the processes whose lease is over.
func (d *Driver) endOverdue(ctx context.Context, l guarded, ours func(record) bool) {
	boot, err := sinceBoot()
	if err != nil {
		return
	}
	over := func(end int64) bool { return boot >= time.Duration(end)+guardSlack }
	once, cancel := context.WithTimeout(ctx, overdueEvery)
	defer cancel()
	_, _, _ = d.killLeft(once, func(r record) bool {
		end := l.InPlace
		if r.Generation > 0 { // started for a generation: recovery by restart
			end = l.Restart
		}
		return ours(r) && over(end)
	})
}
