package torchrun

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/regroup-io/regroup/agent/logs"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/escape"
)

// streams is a set of the streams of a worker, as torchrun writes it.
type streams int

const (
	stdout streams = 1
	stderr streams = 2
)

func streamOf(l logs.Line) streams {
	if l.Stream == "stderr" {
		return stderr
	}
	return stdout
}

// selection says which streams of which local rank.
type selection struct {
	all  streams
	rank map[int]streams // of those that are named; nil = all alike
}

func (s selection) of(rank int) streams {
	if s.rank == nil {
		return s.all
	}
	return s.rank[rank]
}

// readSelection reads 0 to 3, or 0:3,1:1.
func readSelection(text string) (s selection, err error) {
	wrong := fmt.Errorf("is %q: write 0 (none), 1 (stdout), 2 (stderr), 3 (both), or of single local ranks 0:3,1:1", text)
	read := func(t string) (streams, bool) {
		n, err := strconv.Atoi(strings.TrimSpace(t))
		return streams(n), err == nil && n >= 0 && n <= 3
	}
	if all, ok := read(text); ok {
		return selection{all: all}, nil
	}
	s.rank = map[int]streams{}
	for item := range strings.SplitSeq(text, ",") {
		rank, which, ok := strings.Cut(item, ":")
		n, err := strconv.Atoi(strings.TrimSpace(rank))
		v, legal := read(which)
		if !ok || err != nil || n < 0 || !legal {
			return s, wrong
		}
		s.rank[n] = v
	}
	return s, nil
}

// console shows the output of the workers of this node, and writes it to files, as torchrun does.
type console struct {
	out, err   display
	bottom     *screen.Sticky
	redirects  selection // written to files alone
	tee        selection // shown with the prefix, and written to files
	shown      map[int]bool
	prefix     string
	role, host string
	dir        string // of the run; empty = no files
	duplicates map[streams][]string

	mu     sync.Mutex
	files  map[string]*os.File // by path; nil = it could not be written
	failed error               // why a file was not written, the first time
}

// display is where one of the streams is shown.
type display struct {
	io.Writer
	terminal bool
	palette  screen.Palette
}

// consoleError is an error in a flag.
type consoleError struct{ finding spec.FieldError }

func (e *consoleError) Error() string { return e.finding.String() }

// newConsole reads the flags about output. colour is the mode of --color, host this node's name.
func newConsole(o *options, env command.Env, colour, host, run string) (*console, error) {
	wrong := func(flag string, err error) error {
		return &consoleError{spec.FieldError{Path: "--" + flag, Message: err.Error()}}
	}
	c := &console{
		out: display{Writer: env.Out, terminal: env.IsTerminal}, err: display{Writer: env.Err, terminal: env.ErrIsTerminal},
		bottom: screen.NewSticky(env.Err, env.ErrIsTerminal, env.Now), prefix: o.text("log-line-prefix-template"), role: o.text("role"), host: host,
		duplicates: map[streams][]string{}, files: map[string]*os.File{},
	}
	if env.IsTerminal && !env.ErrIsTerminal {
		c.bottom = screen.NewSticky(env.Out, true, env.Now)
	}
	var err error
	for _, d := range []*display{&c.out, &c.err} {
		d.palette = screen.NewPalette(colour, d.terminal, env.Getenv)
	}
	if c.redirects, err = readSelection(o.text("redirects")); err != nil {
		return nil, wrong("redirects", err)
	}
	if c.tee, err = readSelection(o.text("tee")); err != nil {
		return nil, wrong("tee", err)
	}
	if text := o.text("local-ranks-filter"); text != "" {
		c.shown = map[int]bool{}
		for item := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(item))
			if err != nil || n < 0 {
				return nil, wrong("local-ranks-filter", fmt.Errorf("is %q: write local ranks, separated by commas", text))
			}
			c.shown[n] = true
		}
	}
	c.duplicates[stdout], c.duplicates[stderr] = filters(o.text("duplicate-stdout-filters")), filters(o.text("duplicate-stderr-filters"))
	if o.text("log-dir") != "" && run != "" {
		var random [4]byte
		_, _ = rand.Read(random[:])                  // never fails
		logs, err := filepath.Abs(o.text("log-dir")) // workers may have another working directory
		if err != nil {
			return nil, wrong("log-dir", err)
		}
		c.dir = filepath.Join(logs, within.Replace(run)+"_"+hex.EncodeToString(random[:]))
	}
	return c, nil
}

// within makes the id of a run, which may hold anything, the name of a directory that is in the one
// for logs.
var within = strings.NewReplacer("/", "_", "\x00", "_")

// filters reads texts separated by commas; two commas stand for one.
func filters(text string) (all []string) {
	const mark = "\x00"
	for item := range strings.SplitSeq(strings.ReplaceAll(text, ",,", mark), ",") {
		if item != "" {
			all = append(all, strings.ReplaceAll(item, mark, ","))
		}
	}
	return all
}

// line takes one line of output. What is not finished is in no file.
func (c *console) line(l logs.Line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stream := streamOf(l)
	redirected, teed := c.redirects.of(l.LocalRank)&stream != 0, c.tee.of(l.LocalRank)&stream != 0
	hidden := c.shown != nil && !c.shown[l.LocalRank]
	attempt := c.attempt(l.Generation)
	if (redirected || teed || hidden) && !l.Open {
		c.write(filepath.Join(attempt, strconv.Itoa(l.LocalRank), l.Stream+".log"), l.Text)
	}
	for _, f := range c.duplicates[stream] {
		if strings.Contains(l.Text, f) && !l.Open {
			c.write(filepath.Join(attempt, "filtered_"+l.Stream+".log"), c.prefixOf(l)+l.Text)
			break
		}
	}
	to := c.out
	if stream == stderr {
		to = c.err
	}
	if hidden || redirected && !teed {
		return
	}
	p := screen.Printed{Of: output.Source{Place: l.Place, Stream: l.Stream}, Rank: l.Rank, Text: to.palette.Output(l.Text), Open: l.Open}
	if teed {
		p.Prefix = escape.Text(c.prefixOf(l))
	}
	_ = c.bottom.Line(to, to.terminal, p) // as it is with torchrun, a reader who has gone ends nothing
}

// attempt returns the directory of a generation.
func (c *console) attempt(g ident.Generation) string {
	return filepath.Join(c.dir, fmt.Sprintf("attempt_%d", max(int(g), 1)-1))
}

// errorFile returns the path of the error file of a worker, whose directory it makes; "" = there is
// none.
func (c *console) errorFile(localRank int, g ident.Generation) string {
	if c.dir == "" {
		return ""
	}
	dir := filepath.Join(c.attempt(g), strconv.Itoa(localRank))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.note(err)
		return ""
	}
	return filepath.Join(dir, "error.json")
}

func (c *console) prefixOf(l logs.Line) string {
	return strings.NewReplacer(
		"${role_name}", c.role, "${local_rank}", strconv.Itoa(l.LocalRank), "${rank}", strconv.Itoa(int(l.Rank)), "${hostname}", c.host,
	).Replace(c.prefix)
}

// write appends a line to a file, which it creates with its folders. The first error is kept.
func (c *console) write(path, text string) {
	if c.dir == "" {
		return
	}
	f, open := c.files[path]
	if !open {
		err := os.MkdirAll(filepath.Dir(path), 0o750)
		if err == nil {
			f, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
		}
		if err != nil {
			f = nil
			c.note(err)
		}
		c.files[path] = f
	}
	if f == nil {
		return
	}
	if _, err := f.WriteString(text + "\n"); err != nil {
		c.note(err)
	}
}

func (c *console) note(err error) {
	if c.failed == nil {
		c.failed = err
	}
}

// close shows what is not finished, closes the files, and returns why output is missing in them.
func (c *console) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.bottom.Finish() // as in line
	for _, path := range slices.Sorted(maps.Keys(c.files)) {
		if f := c.files[path]; f != nil {
			if err := f.Close(); err != nil {
				c.note(err)
			}
		}
	}
	if c.failed != nil {
		return fmt.Errorf("--log-dir: output is missing there: %w", c.failed)
	}
	return nil
}
