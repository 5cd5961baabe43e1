package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/events/limits"
)

// maxJobName leaves room for "-" and four digits in a token.
const maxJobName = MaxLabel - 5

// laterFields are fields that are not implemented yet: they are refused, but not called unknown.
var laterFields = []string{
	"namespace", "image", "resources", "checkpoint", "schedule", "logs", "notify", "trace",
	"workers.start", "workers.perNode",
	"elastic.shrink", "elastic.grow", "elastic.spares", "elastic.lrScale",
	"data.shuffleSeed", "failures.backoff", "health.slow",
}

// Parse decodes a job spec from JSON and returns it as written (see WithDefaults), with all errors:
// fields that do not exist at any depth, wrong types, repeated fields, and those of Check. A spec
// without errors can run.
func Parse(data []byte) (Job, []FieldError) {
	var s Job
	if strings.TrimSpace(string(data)) == "null" {
		return s, []FieldError{{Message: "the spec is empty: it needs at least name, command and workers"}}
	}
	bad := (&shape{strict: true}).run(data, reflect.TypeFor[Job](), "")
	err := json.Unmarshal(data, &s) // after a mismatch it continues with the other fields
	if err != nil && len(bad) == 0 {
		bad = append(bad, FieldError{Message: err.Error()})
	}
	for _, f := range bad {
		if f.Path == "" {
			return s, bad // not even an object: checking fields would only add noise
		}
	}
	misfits := bad
	for _, f := range s.WithDefaults().Check() {
		if !covered(misfits, f.Path) {
			bad = append(bad, f)
		}
	}
	return s, bad
}

// covered reports whether there is an error for path or one of its parents.
func covered(bad []FieldError, path string) bool {
	for _, f := range bad {
		if path == f.Path || strings.HasPrefix(path, f.Path+".") || strings.HasPrefix(f.Path, path+"[") {
			return true
		}
	}
	return false
}

// Check returns all errors of a spec with defaults; each names the field and the fix. The rules of
// single fields are their tags; here is what tags do not express.
func (s Job) Check() []FieldError {
	var bad []FieldError
	add := func(path, format string, args ...any) {
		bad = append(bad, FieldError{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	if err := CheckLabel("name", s.Name); err != nil {
		add("name", "%s", err)
	} else if len(s.Name) > maxJobName {
		add("name", "has %d characters, at most %d are allowed", len(s.Name), maxJobName)
	}
	s.checkCommand(add)
	s.checkEnv(add)
	s.checkSecrets(add)
	for i := range rules {
		bad = rules[i].check(&s, bad)
	}
	if w := s.Workers; w.Min > 0 && w.Max < w.Min {
		add("workers.max", "is %d, must be at least workers.min (%d)", w.Max, w.Min)
	}
	s.checkProcesses(add)
	s.checkLimits(add)
	s.checkRendezvous(add)
	s.checkMultiples(add)
	s.checkGPU(add)
	return bad
}

// checkMultiples checks elastic.multipleOf; numbers out of bounds are reported by their rules.
func (s Job) checkMultiples(add func(path, format string, args ...any)) {
	m := s.Elastic.MultipleOf
	switch {
	case m <= 1 || m > limits.Workers.Max:
		return
	case s.Rendezvous != nil:
		add("elastic.multipleOf", "is %d, but how many workers there are follows from the nodes of the rendezvous: leave it out", m)
		return
	}
	multiple := func(path string, n int) {
		below := s.Elastic.Whole(n)
		if n < 1 || n > limits.Workers.Max || below == n {
			return
		}
		fix := strconv.Itoa(below)
		switch above := below + m; {
		case below == 0:
			fix = strconv.Itoa(above)
		case above <= limits.Workers.Max:
			fix += " or " + strconv.Itoa(above)
		}
		add(path, "is %d, must be a multiple of elastic.multipleOf (%d): write %s", n, m, fix)
	}
	multiple("workers.min", s.Workers.Min)
	multiple("workers.max", s.Workers.Max)
}

func (s Job) checkCommand(add func(path, format string, args ...any)) {
	if len(s.Command) == 0 {
		add("command", "is empty: give the program and its arguments")
	} else if s.Command[0] == "" {
		add("command[0]", "is empty: give the program to start")
	}
	for i, c := range s.Command {
		if strings.ContainsRune(c, 0) {
			add(fmt.Sprintf("command[%d]", i), "holds a NUL character")
		}
	}
}

// interpreter matches the names of Python interpreters.
var interpreter = regexp.MustCompile(`^python[0-9.]*$`)

// module matches the names of Python modules.
var module = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)

const maxPreload = 100

func (s Job) checkProcesses(add func(path, format string, args ...any)) {
	p := s.Processes
	if p.Spares > 0 && len(s.Command) > 0 && !interpreter.MatchString(filepath.Base(s.Command[0])) {
		add("processes.spares", "is %d, but %s is no Python interpreter: spares are for commands such as python train.py", p.Spares, strconv.Quote(s.Command[0]))
	}
	if len(p.Preload) > maxPreload {
		add("processes.preload", "has %d modules, at most %d are allowed", len(p.Preload), maxPreload)
	}
	preload := len(p.Preload) > 0
	for i, name := range p.Preload[:min(len(p.Preload), maxPreload)] {
		if !module.MatchString(name) {
			add(fmt.Sprintf("processes.preload[%d]", i), "%s is no name of a module, such as torchvision.transforms", strconv.Quote(name))
			preload = false // one finding is enough
			break
		}
	}
	for _, field := range []struct {
		path string
		set  bool
	}{{"processes.preload", preload}, {"processes.spareContexts", p.SpareContexts}, {"processes.awaitSpares", p.AwaitSpares}} {
		if field.set && p.Spares == 0 {
			add(field.path, "has an effect with processes.spares alone: set that to the workers of a node, or fewer")
		}
	}
}

// Bounds of processes.limits.cpus: the kernel accepts no less.
const (
	minCPUs = 0.01
	maxCPUs = 1 << 16
)

func (s Job) checkLimits(add func(path, format string, args ...any)) {
	l := s.Processes.Limits
	if l.CPUs != 0 && !(l.CPUs >= minCPUs && l.CPUs <= maxCPUs) { // it may be no number
		add("processes.limits.cpus", "is %v, must be %v to %d", l.CPUs, minCPUs, maxCPUs)
	}
}

func (s Job) checkEnv(add func(path, format string, args ...any)) {
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		path := JoinPath("env", name)
		switch {
		case !legalEnv(name):
			add(path, "%s is not a legal variable name: use letters, digits and _, not beginning with a digit", strconv.Quote(name))
		case AgentSets(name):
			add(path, "is set by the agent for each worker: leave it out")
		case strings.ContainsRune(s.Env[name], 0):
			add(path, "holds a NUL character")
		}
	}
}

func legalEnv(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
