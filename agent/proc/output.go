package proc

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/agent/traceback"
	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
)

const (
	keepLines = 20       // of the last output, for the fact of the exit
	maxLine   = 16 << 10 // a longer line is split
	// A process that left the group can hold the pipe open for ever; its output is not awaited for
	// longer than this.
	drainFor = 250 * time.Millisecond
)

// capture reads the two output streams of a process line by line.
type capture struct {
	out, err *pipe
	done     sync.WaitGroup
	mask     atomic.Pointer[mask] // conceals secrets in all of it
	mu       sync.Mutex
	last     []string
}

type pipe struct {
	name string
	r, w *os.File
	emit func(string, []string)
	c    *capture
	says traceback.Parser
}

func newCapture(emit func(string, []string), who *worker.Account) (*capture, error) {
	c := &capture{}
	for _, s := range []struct {
		name string
		to   **pipe
	}{{"stdout", &c.out}, {"stderr", &c.err}} {
		r, w, err := os.Pipe()
		if err != nil {
			c.abort()
			return nil, err
		}
		*s.to = &pipe{name: s.name, r: r, w: w, emit: emit, c: c}
	}
	if err := c.give(who); err != nil {
		c.abort()
		return nil, err
	}
	return c, nil
}

// give makes the write ends those of a worker's user, who can then open them by name as
// /dev/stdout and /dev/stderr.
func (c *capture) give(who *worker.Account) error {
	if !another(who) {
		return nil
	}
	return errors.Join(c.out.w.Chown(int(who.UID), int(who.GID)), c.err.w.Chown(int(who.UID), int(who.GID)))
}

// abort closes everything if the process was not started.
func (c *capture) abort() {
	for _, p := range []*pipe{c.out, c.err} {
		if p != nil {
			_ = p.r.Close()
			_ = p.w.Close()
		}
	}
}

// begin reads in the background; from now on only the process has the write ends.
func (c *capture) begin(owner *sync.WaitGroup) {
	for _, p := range []*pipe{c.out, c.err} {
		_ = p.w.Close()
		c.done.Add(1)
		owner.Go(func() {
			defer c.done.Done()
			p.read()
		})
	}
}

// end waits for the rest of the output. There is no output afterwards.
func (c *capture) end() {
	for _, p := range []*pipe{c.out, c.err} {
		_ = p.r.SetReadDeadline(time.Now().Add(drainFor))
	}
	c.done.Wait()
	_, _ = c.out.r.Close(), c.err.r.Close()
}

// Numbers of lines that may follow an exception which ended the program.
const (
	behindUncaught = 50 // destructors and handlers may print
	behindCaught   = 5  // the program reports it and exits
)

// exception returns what a program that ended at a time has printed about it. An uncaught exception
// ended the program as in Python, Go and C++.
func (c *capture) exception(uncaught bool, at time.Time) *events.Exception {
	within := behindCaught
	if uncaught {
		within = behindUncaught
	}
	for _, p := range []*pipe{c.err, c.out} {
		if x, said := p.says.Last(within); x != nil {
			x.BeforeMS = events.Milliseconds(max(0, at.Sub(said)))
			return x
		}
	}
	return nil
}

func (c *capture) lines() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.last)
}

func (p *pipe) read() {
	buf := make([]byte, 32<<10)
	var rest []byte
	for {
		n, err := p.r.Read(buf)
		rest = append(rest, buf[:n]...)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// the process has ended; read what is left in the pipe
			rest = append(rest, p.left()...)
		}
		lines, unfinished := p.split(rest, err != nil)
		rest = unfinished
		if len(lines) > 0 {
			now := time.Now()
			for _, l := range lines {
				p.says.Line(l, now)
			}
			p.c.keep(lines)
			p.emit(p.name, lines)
		}
		if err != nil {
			return
		}
	}
}

// split returns the lines of output, long ones in pieces, and what does not end in a line yet. With
// last that is a line too. Secrets are concealed before a line is cut, so that no part of one
// remains.
func (p *pipe) split(output []byte, last bool) (lines []string, rest []byte) {
	hide := p.c.mask.Load()
	emit := func(line []byte) {
		s := strings.TrimSuffix(hide.text(string(line)), "\r")
		for ; len(s) > maxLine; s = s[maxLine:] {
			lines = append(lines, text(s[:maxLine]))
		}
		lines = append(lines, text(s))
	}
	for {
		i := bytes.IndexByte(output, '\n')
		if i < 0 {
			break
		}
		emit(output[:i])
		output = output[i+1:]
	}
	if last && len(output) > 0 {
		emit(output)
		return lines, nil
	}
	if len(output) > maxLine+hide.margin() {
		for output = []byte(hide.text(string(output))); len(output) > maxLine+hide.margin(); output = output[maxLine:] {
			lines = append(lines, text(string(output[:maxLine])))
		}
	}
	return lines, slices.Clone(output) // releases what was consumed
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

// text makes a line valid UTF-8: truncated or binary bytes must not break the fact that carries it.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func (c *capture) keep(lines []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = append(c.last, lines...)
	if n := len(c.last); n > keepLines {
		c.last = slices.Clone(c.last[n-keepLines:])
	}
}
