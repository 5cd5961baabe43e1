// Package capture reads what the processes of workers print: line by line, without secrets, and
// with an eye on why they end.
package capture

import (
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/agent/traceback"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/events/tables"
)

const (
	keepLines = 20 // of the last output, for the fact of the exit
	// So many of them are of stderr if it has them: what was printed to stdout at the same time
	// must not displace a traceback.
	keepErrors = 15
	// A process that left the group can hold the pipe open for ever; its output is not awaited for
	// longer than this.
	drainFor = 250 * time.Millisecond
)

// Capture reads the two output streams of a process.
type Capture struct {
	out, err  *pipe
	done      sync.WaitGroup
	mask      atomic.Pointer[Mask]
	mu        sync.Mutex
	lineCount int // lines of both
}

type pipe struct {
	name string
	r, w *os.File
	emit func(string, []output.Line)
	c    *Capture

	mu        sync.Mutex // in what follows and emit: reader and timer take turns
	lines     reader
	traceback traceback.Parser
	last      []lastLine  // guarded by c.mu
	timer     *time.Timer // for what is due although nothing is read; nil = none yet
	over      bool
}

// lastLine is one of the last lines of a stream.
type lastLine struct {
	number int // among those of both streams
	text   string
}

// New opens the pipes of a process. emit is called with lines of "stdout" and "stderr" as they
// come.
func New(emit func(stream string, lines []output.Line)) (*Capture, error) {
	c := &Capture{}
	for name, to := range map[string]**pipe{"stdout": &c.out, "stderr": &c.err} {
		r, w, err := os.Pipe()
		if err != nil {
			c.Abort()
			return nil, err
		}
		*to = &pipe{name: name, r: r, w: w, emit: emit, c: c, lines: reader{mask: c.mask.Load}}
	}
	return c, nil
}

// Conceal conceals values in what is read from now on.
func (c *Capture) Conceal(m *Mask) { c.mask.Store(m) }

// Text returns a text with these values replaced.
func (c *Capture) Text(s string) string { return c.mask.Load().Text(s) }

// Files returns what the process gets as its standard output and its standard error.
func (c *Capture) Files() (stdout, stderr *os.File) { return c.out.w, c.err.w }

// Chown makes the files those of a user, who can then open them by name as /dev/stdout and
// /dev/stderr.
func (c *Capture) Chown(uid, gid int) error {
	return errors.Join(c.out.w.Chown(uid, gid), c.err.w.Chown(uid, gid))
}

// Abort closes everything if the process was not started.
func (c *Capture) Abort() {
	for _, p := range []*pipe{c.out, c.err} {
		if p != nil {
			_ = p.r.Close()
			_ = p.w.Close()
		}
	}
}

// Begin reads in the background; from now on only the process has the write ends.
func (c *Capture) Begin(owner *sync.WaitGroup) {
	for _, p := range []*pipe{c.out, c.err} {
		_ = p.w.Close()
		c.done.Add(1)
		owner.Go(func() {
			defer c.done.Done()
			p.read()
		})
	}
}

// End waits for the rest of the output. There is no output afterwards.
func (c *Capture) End() {
	for _, p := range []*pipe{c.out, c.err} {
		_ = p.r.SetReadDeadline(time.Now().Add(drainFor))
	}
	c.done.Wait()
	_, _ = c.out.r.Close(), c.err.r.Close()
}

// Numbers of lines that may follow an exception which ended the program.
const (
	afterUncaught = 50 // destructors and handlers may print
	afterCaught   = 5  // the program reports it and exits
)

// Exception returns what a program that ended at a time has printed about it. An uncaught exception
// ended the program as in Python, Go and C++.
func (c *Capture) Exception(uncaught bool, at time.Time) *tables.Exception {
	within := afterCaught
	if uncaught {
		within = afterUncaught
	}
	for _, p := range []*pipe{c.err, c.out} {
		if x, raised := p.traceback.Last(within); x != nil {
			x.BeforeMS = events.Milliseconds(max(0, at.Sub(raised)))
			return x
		}
	}
	return nil
}

// Lines returns the last lines of both streams, in the order in which they came.
func (c *Capture) Lines() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	errs, out := c.err.last, c.out.last
	out = out[max(0, len(out)+min(len(errs), keepErrors)-keepLines):]
	errs = errs[max(0, len(errs)+len(out)-keepLines):]
	all := slices.Concat(out, errs)
	slices.SortFunc(all, func(a, b lastLine) int { return a.number - b.number })
	var texts []string
	for _, l := range all {
		texts = append(texts, l.text)
	}
	return texts
}

func (p *pipe) read() {
	buf := make([]byte, 32<<10)
	for {
		n, err := p.r.Read(buf)
		data := buf[:n]
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// the process has ended; read what is left in the pipe
			data = append(slices.Clone(data), p.left()...)
		}
		p.mu.Lock()
		p.pass(p.lines.Read(data, time.Now()))
		if p.over = err != nil; p.over {
			p.pass(p.lines.End())
		}
		p.arm()
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// pass passes lines on. Colours are not for the parser and for the fact of the exit, nor are states
// of lines that are not finished.
func (p *pipe) pass(all []output.Line) {
	if len(all) == 0 {
		return
	}
	now := time.Now()
	var finished []string
	for _, l := range all {
		if l.Open {
			continue
		}
		text := output.Plain(l.Text)
		p.traceback.Line(text, now)
		finished = append(finished, text)
	}
	p.keep(finished)
	p.emit(p.name, all)
}

// arm sets the timer.
func (p *pipe) arm() {
	at := p.lines.Deadline()
	switch {
	case p.over || at.IsZero():
		if p.timer != nil {
			p.timer.Stop()
		}
	case p.timer == nil:
		p.timer = time.AfterFunc(time.Until(at), p.due)
	default:
		p.timer.Reset(time.Until(at))
	}
}

// due passes on the state of a line that is not finished.
func (p *pipe) due() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	p.pass(p.lines.Due(time.Now()))
	p.arm()
}

// left reads what is in the pipe now, without waiting: at most the capacity of a pipe.
func (p *pipe) left() (all []byte) {
	const most = 1 << 20 // default of fs.pipe-max-size
	if p.r.SetReadDeadline(time.Time{}) != nil {
		return nil
	}
	raw, err := p.r.SyscallConn()
	if err != nil {
		return nil
	}
	buf := make([]byte, 64<<10)
	for len(all) < most {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			n, _ = unix.Read(int(fd), buf) // what cannot be read now is skipped
			return true
		})
		if err != nil || n <= 0 {
			break
		}
		all = append(all, buf[:n]...)
	}
	return all
}

func (p *pipe) keep(lines []string) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	for _, text := range lines {
		p.c.lineCount++
		p.last = append(p.last, lastLine{p.c.lineCount, text})
	}
	if n := len(p.last); n > keepLines {
		p.last = slices.Clone(p.last[n-keepLines:])
	}
}
