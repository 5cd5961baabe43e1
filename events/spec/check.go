package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/limits"
)

const (
	maxJobName = 58 // with "-" and four digits it must still be one token

	maxSameStep = 1000 // this many failures are kept
	// Two intervals of the registry's writes of a step: one replica's steps protect against another
	// that misses them.
	minHang  = Duration(10 * time.Second)
	pathHang = "health.hang" // the only duration that may be 0
)

// stopSignals are the signals with which a job may be stopped.
var stopSignals = []string{"SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGQUIT"}

// laterFields are fields of the full job spec that are not implemented yet: they are refused, but
// not called unknown.
var laterFields = []string{
	"namespace", "image", "resources", "secrets", "checkpoint", "schedule", "logs", "notify", "trace",
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
	later := map[string]bool{}
	for _, f := range laterFields {
		later[f] = true
	}
	bad := (&shape{strict: true, later: later}).run(data, reflect.TypeFor[Job](), "")
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

// Check returns all errors of a spec with defaults; each names the field and the fix.
func (s Job) Check() []FieldError {
	var bad []FieldError
	add := func(path, format string, args ...any) {
		bad = append(bad, FieldError{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	if s.Version != "v1" {
		add("version", "%q is not understood: write v1 or leave it out", s.Version)
	}
	if err := CheckLabel("name", s.Name); err != nil {
		add("name", "%s", err)
	} else if len(s.Name) > maxJobName {
		add("name", "has %d characters, at most %d are allowed", len(s.Name), maxJobName)
	}
	s.checkCommand(add)
	s.checkEnv(add)
	switch w := s.Workers; {
	case w.Min < 1:
		add("workers.min", "is %d, must be at least 1", w.Min)
	case w.Max < w.Min:
		add("workers.max", "is %d, must be at least workers.min (%d)", w.Max, w.Min)
	}
	if s.Workers.Max > limits.Workers.Max {
		add("workers.max", "is %d, at most %d are allowed (limit %s)", s.Workers.Max, limits.Workers.Max, limits.Workers.Name)
	}
	if s.Data.Samples > uint64(limits.Samples.Max) {
		add("data.samples", "is %d, at most %d are allowed (limit %s)", s.Data.Samples, limits.Samples.Max, limits.Samples.Name)
	}
	if s.Recovery != RecoveryRestart && s.Recovery != RecoveryInProcess {
		add("recovery", "%q is neither %q (any program) nor %q (programs that use the SDK)", s.Recovery, RecoveryRestart, RecoveryInProcess)
	}
	s.checkLimits(add)
	for _, d := range []struct {
		path  string
		value Duration
	}{
		{"failures.per", s.Failures.Per},
		{"elastic.lastCall", s.Elastic.LastCall},
		{"elastic.rejoinWithin", s.Elastic.RejoinWithin},
		{"elastic.startWithin", s.Elastic.StartWithin},
		{"elastic.timeout", s.Elastic.Timeout},
		{"elastic.settle", s.Elastic.Settle},
		{"stop.grace", s.Stop.Grace},
	} {
		if d.value <= 0 {
			add(d.path, "is %s, must be more than 0: write 500ms, 30s or 1h", d.value.D())
		}
	}
	s.checkStop(&bad)
	s.checkRendezvous(add)
	return bad
}

// checkLimits checks the settings that end a job which makes no progress.
func (s Job) checkLimits(add func(path, format string, args ...any)) {
	f, e := s.Failures, s.Elastic
	if f.Max != nil && *f.Max < 0 {
		add("failures.max", "is %d, must be 0 (the first failure ends the job) or more", *f.Max)
	}
	if f.Max != nil && *f.Max > limits.Failures.Max {
		add("failures.max", "is %d, at most %d are allowed (limit %s)", *f.Max, limits.Failures.Max, limits.Failures.Name)
	}
	if f.SameStep < 1 || f.SameStep > maxSameStep {
		add("failures.sameStep", "is %d, must be 1 to %d: so many failures at one step end the job", f.SameStep, maxSameStep)
	}
	if e.ResetLimit != nil && *e.ResetLimit < 0 {
		add("elastic.resetLimit", "is %d, must be 0 (no regroup at all) or more; leave it out for no limit", *e.ResetLimit)
	}
	if h := s.Health.Hang; h != 0 && h < minHang {
		add(pathHang, "is %s, must be at least %s, or 0 to take no job for hung: 5m, or ten times the longest step", h.D(), minHang.D())
	}
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
	if s.Workdir != "" && !strings.HasPrefix(s.Workdir, "/") {
		add("workdir", "%q is not absolute: it must begin with / and exist on every node", s.Workdir)
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

func (s Job) checkStop(bad *[]FieldError) {
	for _, known := range stopSignals {
		if s.Stop.Signal == known {
			return
		}
	}
	*bad = append(*bad, FieldError{
		Path: "stop.signal", Hint: DidYouMean(s.Stop.Signal, stopSignals),
		Message: fmt.Sprintf("%q is not one of %s", s.Stop.Signal, strings.Join(stopSignals, ", ")),
	})
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
