package proc

import (
	"bufio"
	"cmp"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/agent/capture"
	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/agent/workerenv"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
)

// A spare is a Python interpreter of a job that has imported its modules and waits. A worker that
// starts takes one over, if there is one: the process gets the worker's environment, arguments and
// identity, and runs its program. Until then it is no worker, and no fact names it.

//go:embed spare.py
var spareModule string

// imported are the modules that each spare imports, if they are there: PyTorch, and those parts of
// it that it imports itself when a script makes a group, a model or an optimizer.
var imported = []string{
	"numpy?", "torch?", "torch.distributed?", "torch.nn.parallel?", "torch.optim?", "torch.utils.data?", "torch.distributed.elastic.multiprocessing.errors?", "torch._dynamo?", "torch.distributed.fsdp?",
}

// spares is the pool of one job: interpreters that wait to become its workers.
type spares struct {
	want    worker.KeepSpares
	changed func(worker.SparesKept)
	problem string   // the newest one since KeepSpares
	idle    []*spare // oldest first
}

type spare struct {
	p       *process
	control *os.File
	options []string           // of the interpreter, which is the first
	context *workerenv.Context // nil = it does not touch a GPU
	ready   bool               // it has done what it was asked to
	wrong   bool               // it never will
	sink    *sink
}

// needed returns the contexts of all spares that are wanted; nil = none.
func (s *spares) needed() (all []*workerenv.Context) {
	for i := range s.want.Count {
		var c *workerenv.Context
		if n := len(s.want.Contexts); n > 0 {
			c = &s.want.Contexts[i%n]
		}
		all = append(all, c)
	}
	return all
}

// divide returns the spares that are wanted, in the order of s.idle, those that are not, and the
// contexts of those that are missing. Those that are ready are preferred.
func (s *spares) divide() (kept, others []*spare, missing []*workerenv.Context) {
	missing = s.needed()
	wanted := map[*spare]bool{}
	for _, ready := range []bool{true, false} {
		for _, sp := range s.idle {
			if i := slices.IndexFunc(missing, sp.has); i >= 0 && sp.ready == ready && !sp.wrong {
				missing = slices.Delete(missing, i, i+1)
				wanted[sp] = true
			}
		}
	}
	for _, sp := range s.idle {
		if wanted[sp] {
			kept = append(kept, sp)
		} else {
			others = append(others, sp)
		}
	}
	return kept, others, missing
}

func (sp *spare) has(c *workerenv.Context) bool {
	if c == nil || sp.context == nil {
		return c == nil && sp.context == nil
	}
	return sp.context.Equal(*c)
}

// report passes on how many spares are ready, and what is wrong with one; empty = nothing new.
func (s *spares) report(problem string) {
	s.problem = cmp.Or(problem, s.problem)
	x := worker.SparesKept{Job: s.want.Job, Request: s.want.Request, Problem: s.problem}
	for _, sp := range s.idle {
		if sp.ready {
			x.Ready++
		}
	}
	s.changed(x)
}

// sink passes output on to its worker, and holds the first finished lines until there is one.
type sink struct {
	mu   sync.Mutex
	to   func(stream string, lines []output.Line)
	held []heldLines
	kept int
}

type heldLines struct {
	stream string
	lines  []output.Line
}

// maxHeld bounds the lines of a spare, such as warnings of imports.
const maxHeld = 200

func (s *sink) emit(stream string, lines []output.Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to != nil {
		s.to(stream, lines)
		return
	}
	lines = slices.DeleteFunc(slices.Clone(lines), func(l output.Line) bool { return l.Open })
	if n := maxHeld - s.kept; n < len(lines) {
		lines = lines[:n]
	}
	if len(lines) > 0 {
		s.held, s.kept = append(s.held, heldLines{stream, lines}), s.kept+len(lines)
	}
}

func (s *sink) direct(to func(stream string, lines []output.Line)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		to(h.stream, h.lines)
	}
	s.to, s.held = to, nil
}

// KeepSpares implements agent.Driver.
func (d *Driver) KeepSpares(k worker.KeepSpares, changed func(worker.SparesKept)) {
	d.mu.Lock()
	s := d.spares[k.Job]
	if s == nil {
		s = &spares{}
		d.spares[k.Job] = s
	}
	k.Dir = homeOf(k.Dir, k.Account)
	s.want, s.changed, s.problem = k, changed, ""
	kept, others, missing := s.divide()
	s.idle = kept
	for _, sp := range others {
		sp.p.kill()
	}
	if k.Count == 0 {
		delete(d.spares, k.Job)
	} else {
		s.report("")
	}
	d.mu.Unlock()
	for _, c := range missing {
		start := func() {
			if err := d.forkSpare(k, c); err != nil {
				d.mu.Lock()
				defer d.mu.Unlock()
				if s := d.spares[k.Job]; s != nil {
					s.report(err.Error())
				}
			}
		}
		select {
		case d.spawn <- start:
		case <-d.ended:
			return
		}
	}
}

// forkSpare must be called on the locked thread.
func (d *Driver) forkSpare(k worker.KeepSpares, c *workerenv.Context) error {
	options, _, err := interpreter(k.Command)
	if err != nil {
		return err
	}
	id := ident.Incarnation(rand.Text())
	s := worker.StartProcess{Job: k.Job, Worker: id, Env: map[string]string{}, Defaults: k.Defaults, Dir: k.Dir, Account: k.Account, Inherited: k.Inherited, Limits: k.Limits}
	maps.Copy(s.Env, k.Env)
	s.Env[worker.EnvIncarnation] = string(id)
	device := -1
	if c != nil {
		device = c.Device
		for _, variable := range c.Visible {
			name, value, _ := strings.Cut(variable, "=")
			s.Env[name] = value
		}
	}
	env := environment(d.opt.Environ, s)
	path, err := lookup(options[:1], k.Dir, env)
	if err != nil {
		return err
	}
	modules, err := json.Marshal(append([]string{}, slices.Concat(imported, k.Preload)...)) // not nil, which would be null: no Python
	if err != nil {
		return err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("proc: a spare: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "spare"), os.NewFile(uintptr(fds[1]), "spare")
	defer theirs.Close()
	out := &sink{}
	p := &process{firstID: id, cmd: &exec.Cmd{
		Path: path, Args: slices.Concat(options, []string{"-c", bootstrap(string(modules), device)}), Env: env, Dir: k.Dir, ExtraFiles: []*os.File{theirs},
	}}
	sp := &spare{p: p, control: ours, options: options, context: c, sink: out}
	err = d.launch(s, p, nil, out.emit, func(start func() error) error {
		pool := d.spares[k.Job]
		if pool == nil || !pool.lacks(sp) {
			return errEnding // the job ends, or wants fewer now
		}
		if err := start(); err != nil {
			return err
		}
		pool.idle = append(pool.idle, sp)
		return nil
	})
	if err != nil {
		_ = ours.Close()
		if errors.Is(err, errEnding) {
			return nil
		}
		return err
	}
	d.waits.Go(func() { d.readSpare(sp, k.Job) })
	return nil
}

// lacks reports whether a spare is wanted beside those that there are.
func (s *spares) lacks(sp *spare) bool {
	_, _, missing := s.divide()
	return slices.ContainsFunc(missing, sp.has)
}

// readSpare reads what a spare says when it has done what it was asked to.
func (d *Driver) readSpare(sp *spare, job ident.JobID) {
	line, err := bufio.NewReader(sp.control).ReadBytes('\n')
	var answer struct {
		Wrong []string `json:"wrong"`
	}
	if err != nil || json.Unmarshal(line, &answer) != nil {
		return // it has ended
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	sp.wrong, sp.ready = len(answer.Wrong) > 0, len(answer.Wrong) == 0
	if s := d.spares[job]; s != nil && slices.Contains(s.idle, sp) {
		s.report(strings.Join(answer.Wrong, "; "))
	}
	if sp.wrong && sp.context != nil && sp.p.worker == "" {
		sp.p.kill() // nobody knows what state CUDA is in
	}
}

// takeSpare makes a spare the process of a worker; nil = there is none. It must be called on the
// locked thread.
func (d *Driver) takeSpare(s worker.StartProcess, mask *capture.Mask, report func(worker.Input), onOutput func(string, []output.Line)) *process {
	options, rest, err := interpreter(s.Command)
	if err != nil {
		return nil
	}
	d.mu.Lock()
	var sp *spare
	if pool := d.spares[s.Job]; pool != nil && pool.want.Dir == s.Dir {
		if i := slices.IndexFunc(pool.idle, func(x *spare) bool {
			return slices.Equal(x.options, options) && x.has(s.Context) && !(x.wrong && x.context != nil)
		}); i >= 0 {
			sp = pool.idle[i]
			pool.idle = slices.Delete(pool.idle, i, i+1)
			pool.report("")
		}
	}
	d.mu.Unlock()
	if sp == nil {
		return nil
	}
	env := map[string]string{}
	for _, kv := range environment(d.opt.Environ, s) {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	sp.p.capture.Conceal(mask)
	line, err := json.Marshal(map[string]any{"env": env, "arguments": rest})
	if err == nil {
		_, err = sp.control.Write(append(line, '\n'))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil || sp.p.over || d.over {
		sp.p.kill()
		return nil
	}
	sp.p.worker, sp.p.report, sp.p.oomBefore, sp.p.dir = s.Worker, report, d.oom.Read(), s.Dir
	d.live[s.Worker] = sp.p
	sp.sink.direct(onOutput)
	return sp.p
}

// spareEnded removes a spare that has ended before a worker took it. The caller holds mu.
func (d *Driver) spareEnded(p *process, x worker.ProcessExited) {
	for _, s := range d.spares {
		i := slices.IndexFunc(s.idle, func(sp *spare) bool { return sp.p == p })
		if i < 0 {
			continue
		}
		sp := s.idle[i]
		s.idle = slices.Delete(s.idle, i, i+1)
		if sp.wrong && sp.context != nil { // it has said why, and was killed
			s.report("")
			continue
		}
		detail := fmt.Sprintf("exit code %d", x.ExitCode)
		if x.Signal != "" {
			detail = x.Signal
		}
		if len(x.Lines) > 0 {
			detail += ": " + x.Lines[len(x.Lines)-1]
		}
		s.report(detail)
	}
}

// bootstrap is the program of a spare. Its module has a name of its own, by which its frames are
// recognised.
func bootstrap(modules string, device int) string {
	const file = "<regroup spare>"
	return fmt.Sprintf(`def start():
    import types
    spare = types.ModuleType("regroup_spare")
    spare.__file__ = %[1]q
    exec(compile(%[2]s, %[1]q, "exec"), vars(spare))
    spare.run(spare.become(spare.wait(%[3]s, %[4]d)))
start()
`, file, strconv.QuoteToASCII(spareModule), modules, device)
}

// valued are the options of Python that take an argument.
var valued = []string{"-W", "-X", "--check-hash-based-pycs"}

var errNoSpare = errors.New("a spare needs a command such as python train.py, python -m module, or python -c code")

// interpreter divides a command into a Python interpreter with its options, and what it runs.
func interpreter(command []string) (options, rest []string, err error) {
	for i := 1; i < len(command); i++ {
		switch a := command[i]; {
		case a == "-m", a == "-c":
			if i+1 == len(command) {
				return nil, nil, errNoSpare
			}
			return command[:i], command[i:], nil
		case slices.Contains(valued, a):
			i++
		case a == "-" || strings.HasPrefix(a, "-") && strings.ContainsAny(strings.TrimLeft(a, "-"), "imcxhV") && !strings.HasPrefix(a, "-W") && !strings.HasPrefix(a, "-X"):
			return nil, nil, errNoSpare // it reads stdin, or is not only an option
		case !strings.HasPrefix(a, "-"):
			return command[:i], command[i:], nil
		}
	}
	return nil, nil, errNoSpare
}
