// Package fake is a driver with simulated processes, whose command is a script.
//
//	fake run=2s exit=7       ends with exit code 7 after two seconds
//	fake run=2s signal=SIGSEGV
//	fake run=2s oom          is killed for memory
//	fake ignore-term         runs until it is killed
//	fake fail-start          cannot be started
//	fake lines=3             prints three lines first
//
// Without run= it runs until it is signalled. It uses the time package, so that it works in virtual
// time.
package fake

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
)

// Driver simulates processes.
type Driver struct {
	mu    sync.Mutex
	pid   int
	live  map[events.Incarnation]*process
	over  bool
	waits sync.WaitGroup
	left  []worker.Orphaned
}

type process struct {
	end     chan worker.ProcessExited // capacity 1: the first end counts
	ignores bool
}

// New returns a driver without processes; leftovers are what Fence returns.
func New(leftovers ...worker.Orphaned) *Driver {
	return &Driver{pid: 1000, live: map[events.Incarnation]*process{}, left: leftovers}
}

// Run ends all processes when ctx ends.
func (d *Driver) Run(ctx context.Context) error {
	<-ctx.Done()
	d.mu.Lock()
	d.over = true
	for id := range d.live {
		d.endLocked(id, killedBy(9, "SIGKILL"))
	}
	d.mu.Unlock()
	d.waits.Wait()
	return nil
}

// Fence returns the leftovers given to New, once.
func (d *Driver) Fence(context.Context) ([]worker.Orphaned, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := d.left
	d.left = nil
	return left, nil
}

// Start starts a simulated process.
func (d *Driver) Start(s worker.StartProcess, tell func(worker.Input), output func(stream string, lines []string)) {
	t, err := read(s.Command)
	d.mu.Lock()
	if err == nil && d.over {
		err = fmt.Errorf("the agent is ending")
	}
	if err != nil {
		d.mu.Unlock()
		tell(worker.ProcessFailedToStart{Worker: s.Worker, ExitCode: 127, Detail: err.Error()})
		return
	}
	d.pid++
	pid := d.pid
	p := &process{end: make(chan worker.ProcessExited, 1), ignores: t.ignores}
	d.live[s.Worker] = p
	d.waits.Go(func() {
		tell(worker.ProcessStarted{Worker: s.Worker, PID: pid})
		if len(t.lines) > 0 {
			output("stdout", t.lines)
		}
		x := t.play(p)
		d.mu.Lock()
		delete(d.live, s.Worker)
		d.mu.Unlock()
		x.Worker, x.Lines = s.Worker, t.lines
		tell(x)
	})
	d.mu.Unlock()
}

// Signal ends a process that does not ignore it.
func (d *Driver) Signal(id events.Incarnation, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	number, ok := numbers[name]
	if !ok {
		return events.Errorf(events.Invalid, "fake: %q is no signal", name)
	}
	if p := d.live[id]; p != nil && !p.ignores {
		d.endLocked(id, killedBy(number, name))
	}
	return nil
}

// Kill ends a process.
func (d *Driver) Kill(id events.Incarnation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endLocked(id, killedBy(9, "SIGKILL"))
}

func (d *Driver) endLocked(id events.Incarnation, x worker.ProcessExited) {
	if p := d.live[id]; p != nil {
		select {
		case p.end <- x:
		default:
		}
	}
}

var numbers = map[string]int{"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGABRT": 6, "SIGKILL": 9, "SIGUSR1": 10, "SIGSEGV": 11, "SIGTERM": 15}

func killedBy(number int, name string) worker.ProcessExited {
	return worker.ProcessExited{ExitCode: -1, Number: number, Signal: name}
}

// script is the behaviour that a command asks for.
type script struct {
	run     time.Duration // 0 = until signalled
	exit    worker.ProcessExited
	ignores bool
	lines   []string
}

func (t script) play(p *process) worker.ProcessExited {
	if t.run == 0 {
		return <-p.end
	}
	done := time.NewTimer(t.run)
	defer done.Stop()
	select {
	case x := <-p.end:
		return x
	case <-done.C:
		return t.exit
	}
}

func read(command []string) (script, error) {
	var t script
	if len(command) == 0 || command[0] != "fake" {
		return t, fmt.Errorf("no such file: %s (the fake driver runs only fake)", strings.Join(command, " "))
	}
	for _, w := range command[1:] {
		k, v, _ := strings.Cut(w, "=")
		var err error
		switch k {
		case "run":
			t.run, err = time.ParseDuration(v)
		case "exit":
			t.exit.ExitCode, err = strconv.Atoi(v)
		case "signal":
			number, ok := numbers[v]
			if !ok {
				err = fmt.Errorf("unknown signal %q", v)
			}
			t.exit = killedBy(number, v)
		case "oom":
			t.exit = killedBy(9, "SIGKILL")
			t.exit.OOM = true
		case "ignore-term":
			t.ignores = true
		case "fail-start":
			err = fmt.Errorf("as the command says")
		case "lines":
			n, aerr := strconv.Atoi(v)
			err = aerr
			for i := range n {
				t.lines = append(t.lines, fmt.Sprintf("line %d", i+1))
			}
		default:
			err = fmt.Errorf("unknown word %q", w)
		}
		if err != nil {
			return t, err
		}
	}
	return t, nil
}
