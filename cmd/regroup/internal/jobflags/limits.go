package jobflags

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/events/spec"
)

// limits are the flags for limits that end a job; with the names of torchrun and horovodrun, where
// they have them.
type limits struct {
	sameStep       int
	resetLimit     int
	elasticTimeout span
	startTimeout   span
	hang           span
}

// span is a duration, or a number of seconds as in horovodrun.
type span time.Duration

func (s *span) String() string { return time.Duration(*s).String() }

// Type implements pflag.Value.
func (*span) Type() string { return "duration" }

// Set reads 600 or 10m.
func (s *span) Set(text string) error {
	d, err := seconds(text)
	if err != nil {
		return fmt.Errorf("%q is no time: write seconds, or 500ms, 30s, 1h", text)
	}
	*s = span(d)
	return nil
}

func (l *limits) add(fs *pflag.FlagSet) {
	fs.IntVar(&l.sameStep, "same-step", 3, "failures in a row at one step after which the data or the code is to blame")
	fs.IntVar(&l.resetLimit, "reset-limit", 0, "regroups after the first generation, planned ones included (default: no limit)")
	fs.Var(&l.elasticTimeout, "elastic-timeout", "how long a job that has run may be below min (default 10m)")
	fs.Var(&l.startTimeout, "start-timeout", "how long the first generation may take once there is room (default 10m)")
	fs.Var(&l.hang, "hang", "no step for so long means that workers hang; a good value is 5m or ten times the longest step (default: never)")
	for _, name := range []string{"elastic-timeout", "start-timeout", "hang"} {
		fs.Lookup(name).DefValue = ""
	}
}

// fill writes the given values into a spec. An explicit time of 0 is an error, not the default.
func (l *limits) fill(fs *pflag.FlagSet, s *spec.Job, add func(path, message string)) {
	if fs.Changed("same-step") {
		if s.Failures.SameStep = l.sameStep; l.sameStep == 0 {
			add("--same-step", "is 0, must be at least 1")
		}
	}
	if fs.Changed("reset-limit") {
		s.Elastic.ResetLimit = &l.resetLimit
	}
	for name, t := range map[string]struct {
		given span
		field *spec.Duration
	}{
		"elastic-timeout": {l.elasticTimeout, &s.Elastic.Timeout}, "start-timeout": {l.startTimeout, &s.Elastic.StartWithin},
	} {
		if *t.field = spec.Duration(t.given); fs.Changed(name) && t.given == 0 {
			add("--"+name, "is 0, must be more: write seconds, or 500ms, 30s, 1h")
		}
	}
	s.Health.Hang = spec.Duration(l.hang)
}

// sizePaths names the fields that horovodrun's flags for the number of workers fill in.
var sizePaths = map[string]string{"min-np": "workers.min", "max-np": "workers.max", "num-proc": "workers.min"}

// sizes are horovodrun's flags for the number of workers.
type sizes struct{ num, least, most int }

func (z *sizes) add(fs *pflag.FlagSet) {
	fs.IntVar(&z.num, "num-proc", 0, "as horovodrun's -np: exactly so many workers, or with --max-np at least so many")
	fs.IntVar(&z.least, "min-np", 0, "as horovodrun's: at least so many workers")
	fs.IntVar(&z.most, "max-np", 0, "as horovodrun's: at most so many workers (default: --num-proc)")
}

// workers derives MIN:MAX from horovodrun's flags; false if none was given. horovodrun starts with
// -np workers and continues with --min-np; here a job starts as soon as min fit, so the two must be
// equal.
func (z *sizes) workers(fs *pflag.FlagSet, add func(path, message string)) (spec.Workers, bool) {
	if !fs.Changed("num-proc") && !fs.Changed("min-np") && !fs.Changed("max-np") {
		return spec.Workers{}, false
	}
	if fs.Changed("workers") {
		add("--workers", "says the same as --num-proc, --min-np and --max-np: give one or the other")
	}
	w := spec.Workers{Min: z.num, Max: z.num}
	if fs.Changed("min-np") {
		w.Min = z.least
	}
	switch {
	case fs.Changed("max-np"):
		w.Max = z.most
	case !fs.Changed("num-proc"):
		w.Max = w.Min
	}
	if !fs.Changed("num-proc") && !fs.Changed("min-np") {
		w.Min = 1
	}
	if fs.Changed("num-proc") && z.num > w.Min {
		add("--num-proc", fmt.Sprintf("is %d and --min-np %d: a job starts here as soon as --min-np workers fit and grows later; leave --num-proc out", z.num, w.Min))
	}
	if fs.Changed("num-proc") && z.num < w.Min {
		w.Max = max(w.Max, w.Min) // reported once
		add("--num-proc", fmt.Sprintf("is %d, less than --min-np %d", z.num, w.Min))
	}
	return w, true
}
