package jobflags

import (
	"fmt"
	"strconv"
	"time"

	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/english"
)

// span is a duration, or a number of seconds as in horovodrun.
type span time.Duration

func (s *span) String() string {
	if *s == 0 {
		return ""
	}
	return time.Duration(*s).String()
}

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

// optional is a whole number that is nil until it is given.
type optional struct{ to **int }

func (o optional) String() string {
	if o.to == nil || *o.to == nil {
		return ""
	}
	return strconv.Itoa(**o.to)
}

// Type implements pflag.Value.
func (optional) Type() string { return "int" }

// Set implements pflag.Value.
func (o optional) Set(text string) error {
	n, err := strconv.ParseInt(text, 0, strconv.IntSize)
	v := int(n)
	*o.to = &v
	return err
}

// sizePaths names the fields that horovodrun's flags for the number of workers fill in.
var sizePaths = map[string]string{"min-np": "workers.min", "max-np": "workers.max", "num-proc": "workers.min"}

// addSizes adds horovodrun's flags for the number of workers.
func (f *Flags) addSizes() {
	fs := f.fs
	fs.IntVar(&f.num, "num-proc", 0, "as horovodrun's -np: exactly so many workers, or with --max-np at least so many")
	fs.IntVar(&f.least, "min-np", 0, "as horovodrun's: at least so many workers")
	fs.IntVar(&f.most, "max-np", 0, "as horovodrun's: at most so many workers (default: --num-proc)")
}

// sizes derives MIN:MAX from horovodrun's flags; false if none was given. horovodrun starts with
// -np workers and continues with --min-np; here a job starts as soon as min fit, which is noted
// where the two differ.
func (f *Flags) sizes(add func(path, message string)) (spec.Workers, bool) {
	fs := f.fs
	if !fs.Changed("num-proc") && !fs.Changed("min-np") && !fs.Changed("max-np") {
		return spec.Workers{}, false
	}
	if fs.Changed("workers") {
		add("--workers", "says the same as --num-proc, --min-np and --max-np: give one or the other")
	}
	w := spec.Workers{Min: f.num, Max: f.num}
	if fs.Changed("min-np") {
		w.Min = f.least
	}
	switch {
	case fs.Changed("max-np"):
		w.Max = f.most
	case !fs.Changed("num-proc"):
		w.Max = w.Min
	}
	if !fs.Changed("num-proc") && !fs.Changed("min-np") {
		w.Min = 1
	}
	if fs.Changed("num-proc") && f.num > w.Min && f.num <= w.Max {
		f.launch.Notes = append(f.launch.Notes, fmt.Sprintf("--num-proc %d is not waited for: the job starts as soon as %s (--min-np), and grows to %d", f.num, english.Clause(w.Min, "worker", "fit"), w.Max))
	}
	if fs.Changed("num-proc") && fs.Changed("min-np") && f.num > w.Max {
		add("--num-proc", fmt.Sprintf("is %d, more than --max-np %d", f.num, w.Max))
	}
	if fs.Changed("num-proc") && f.num < w.Min {
		w.Max = max(w.Max, w.Min) // reported once
		add("--num-proc", fmt.Sprintf("is %d, less than --min-np %d", f.num, w.Min))
	}
	return w, true
}
