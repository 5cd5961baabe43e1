package agent_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
)

// fakeDriver is a driver with simulated processes, whose command is a script:
//
//	fake run=2s exit=7       ends with exit code 7 after two seconds
//	fake run=2s signal=SIGSEGV
//	fake run=2s oom          is killed for memory
//	fake ignore-term         runs until it is killed
//	fake fail-start          cannot be started
//	fake lines=3             prints three lines first
//	fake bars=3              prints a bar of three states to stderr, one every millisecond, and lines
//
// Without run= it runs until it is signalled. It uses the time package, so that it works in virtual
// time.
type fakeDriver struct {
	mu    sync.Mutex
	pid   int
	live  map[ident.Incarnation]*fakeProcess
	over  bool
	waits sync.WaitGroup
	left  []worker.Orphaned
}

type fakeProcess struct {
	end     chan worker.ProcessExited // capacity 1: the first end counts
	ignores bool
}

// newFakeDriver returns a driver without processes; leftovers are what Fence returns.
func newFakeDriver(leftovers ...worker.Orphaned) *fakeDriver {
	return &fakeDriver{pid: 1000, live: map[ident.Incarnation]*fakeProcess{}, left: leftovers}
}

// Run ends all processes when ctx ends.
func (d *fakeDriver) Run(ctx context.Context) error {
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

// Fence returns the leftovers given to newFakeDriver, once.
func (d *fakeDriver) Fence(context.Context) ([]worker.Orphaned, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := d.left
	d.left = nil
	return left, nil
}

// Start starts a simulated process.
func (d *fakeDriver) Start(s worker.StartProcess, report func(worker.Input), onOutput func(stream string, lines []output.Line)) {
	t, err := parseScript(s.Command)
	d.mu.Lock()
	if err == nil && d.over {
		err = fmt.Errorf("the agent is ending")
	}
	if err != nil {
		d.mu.Unlock()
		report(worker.ProcessFailedToStart{Worker: s.Worker, ExitCode: 127, Detail: err.Error()})
		return
	}
	d.pid++
	pid := d.pid
	p := &fakeProcess{end: make(chan worker.ProcessExited, 1), ignores: t.ignores}
	d.live[s.Worker] = p
	d.waits.Go(func() {
		report(worker.ProcessStarted{Worker: s.Worker, PID: pid})
		if len(t.lines) > 0 {
			var all []output.Line
			for _, text := range t.lines {
				all = append(all, output.Line{Text: text})
			}
			onOutput("stdout", all)
		}
		t.bar(func(text string, open bool) { onOutput("stderr", []output.Line{{Text: text, Open: open}}) })
		x := t.play(p)
		d.mu.Lock()
		delete(d.live, s.Worker)
		d.mu.Unlock()
		x.Worker, x.Lines = s.Worker, t.lines
		report(x)
	})
	d.mu.Unlock()
}

// Signal ends a process that does not ignore it.
func (d *fakeDriver) Signal(id ident.Incarnation, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	number, ok := signalNumbers[name]
	if !ok {
		return errcode.Errorf(errcode.Invalid, "fake: %q is no signal", name)
	}
	if p := d.live[id]; p != nil && !p.ignores {
		d.endLocked(id, killedBy(number, name))
	}
	return nil
}

// Conceal replaces nothing: the processes have no secrets.
func (d *fakeDriver) Conceal(_ ident.Incarnation, text string) string { return text }

// Kill ends a process.
func (d *fakeDriver) Kill(id ident.Incarnation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endLocked(id, killedBy(9, "SIGKILL"))
}

// Examine finds nothing: simulated processes end at once.
func (d *fakeDriver) Examine(ident.Incarnation) {}

// Lease does nothing: a test is not frozen.
func (d *fakeDriver) Lease(time.Time, time.Time) {}

func (d *fakeDriver) KeepSpares(worker.KeepSpares, func(worker.SparesKept)) {}

// running returns how many processes have not ended.
func (d *fakeDriver) running() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.live)
}

func (d *fakeDriver) endLocked(id ident.Incarnation, x worker.ProcessExited) {
	if p := d.live[id]; p != nil {
		select {
		case p.end <- x:
		default:
		}
	}
}

var signalNumbers = map[string]int{"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGABRT": 6, "SIGKILL": 9, "SIGUSR1": 10, "SIGSEGV": 11, "SIGTERM": 15}

func killedBy(number int, name string) worker.ProcessExited {
	return worker.ProcessExited{ExitCode: -1, Number: number, Signal: name}
}

// script is the behaviour that a command asks for.
type script struct {
	run     time.Duration // 0 = until signalled
	exit    worker.ProcessExited
	ignores bool
	lines   []string
	bars    int
}

// bar prints a bar between lines.
func (t script) bar(say func(text string, open bool)) {
	if t.bars == 0 {
		return
	}
	say("begins", false)
	for i := range t.bars {
		if i == t.bars/2 {
			say("printed beside it", false)
		}
		say(fmt.Sprintf("bar %d", i), true)
		time.Sleep(time.Millisecond)
	}
	say(fmt.Sprintf("bar %d", t.bars), false)
	say("ends", false)
}

func (t script) play(p *fakeProcess) worker.ProcessExited {
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

// parseScript parses a command.
func parseScript(command []string) (script, error) {
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
			number, ok := signalNumbers[v]
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
		case "bars":
			t.bars, err = strconv.Atoi(v)
		default:
			err = fmt.Errorf("unknown word %q", w)
		}
		if err != nil {
			return t, err
		}
	}
	return t, nil
}

func TestFakeDriverRunsScripts(t *testing.T) {
	for command, want := range map[string]struct {
		x     worker.ProcessExited
		after time.Duration
	}{
		"fake run=2s exit=7":                {worker.ProcessExited{ExitCode: 7}, 2 * time.Second},
		"fake run=1s":                       {worker.ProcessExited{}, time.Second},
		"fake run=1s signal=SIGSEGV":        {worker.ProcessExited{ExitCode: -1, Signal: "SIGSEGV", Number: 11}, time.Second},
		"fake run=3s oom":                   {worker.ProcessExited{ExitCode: -1, Signal: "SIGKILL", Number: 9, OOM: true}, 3 * time.Second},
		"fake":                              {worker.ProcessExited{ExitCode: -1, Signal: "SIGTERM", Number: 15}, 5 * time.Second},
		"fake ignore-term":                  {worker.ProcessExited{ExitCode: -1, Signal: "SIGKILL", Number: 9}, 9 * time.Second},
		"fake run=7s exit=2 ignore-term":    {worker.ProcessExited{ExitCode: 2}, 7 * time.Second},
		"fake run=1m exit=2 ignore-term":    {worker.ProcessExited{ExitCode: -1, Signal: "SIGKILL", Number: 9}, 9 * time.Second},
		"fake run=1s exit=3 lines=2":        {worker.ProcessExited{ExitCode: 3}, time.Second},
		"fake run=20s signal=SIGABRT exit=": {}, // invalid
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			d, done := newFakeDriver(), make(chan error, 1)
			go func() { done <- d.Run(ctx) }()
			in := make(chan worker.Input, 4)
			lines := 0
			from, ended := time.Now(), time.Time{}
			d.Start(worker.StartProcess{Worker: "w", Command: strings.Fields(command)}, func(i worker.Input) { ended = time.Now(); in <- i }, func(_ string, l []output.Line) { lines += len(l) })
			first := <-in
			if f, failed := first.(worker.ProcessFailedToStart); failed {
				if want.after != 0 || f.ExitCode != 127 {
					t.Errorf("%s: %+v", command, f)
				}
				cancel()
				<-done
				return
			}
			time.Sleep(5 * time.Second) // virtual time
			if err := d.Signal("w", "SIGTERM"); err != nil {
				t.Error(err)
			}
			time.Sleep(4 * time.Second)
			d.Kill("w")
			x := (<-in).(worker.ProcessExited)
			if took := ended.Sub(from); took != want.after {
				t.Errorf("%s: ended after %s", command, took)
			}
			if x.ExitCode != want.x.ExitCode || x.Signal != want.x.Signal || x.Number != want.x.Number || x.OOM != want.x.OOM {
				t.Errorf("%s: %+v", command, x)
			}
			if strings.Contains(command, "lines=2") != (lines == 2) {
				t.Errorf("%s: %d lines", command, lines)
			}
			cancel()
			<-done
		})
	}
}

func TestFakeDriverEndsItsProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		d, done := newFakeDriver(), make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		in := make(chan worker.Input, 4)
		report := func(i worker.Input) { in <- i }
		d.Start(worker.StartProcess{Worker: "w", Command: []string{"fake", "ignore-term"}}, report, nil)
		<-in
		cancel()
		<-done
		if x := (<-in).(worker.ProcessExited); x.Signal != "SIGKILL" {
			t.Errorf("%+v", x)
		}
		d.Start(worker.StartProcess{Worker: "v", Command: []string{"fake"}}, report, nil)
		if f, ok := (<-in).(worker.ProcessFailedToStart); !ok || f.Detail == "" {
			t.Errorf("%+v", f)
		}
	})
}
