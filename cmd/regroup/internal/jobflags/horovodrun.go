package jobflags

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/events/spec"
)

// horovod sets the workers' variables for horovodrun's flags. --env overrides them.
func (f *Flags) horovod(s *spec.Job, add func(path, message string)) {
	set := func(name, value string) {
		if _, there := s.Env[name]; there {
			return
		}
		if s.Env == nil {
			s.Env = map[string]string{}
		}
		s.Env[name] = value
	}
	if f.fs.Changed("fusion-threshold-mb") {
		text := *f.launchers["fusion-threshold-mb"]
		mb, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			add("--fusion-threshold-mb", "is "+strconv.Quote(text)+", must be a whole number of MiB")
		}
		set("HOROVOD_FUSION_THRESHOLD", strconv.FormatUint(mb<<20, 10))
	}
	if f.fs.Changed("cycle-time-ms") {
		text := *f.launchers["cycle-time-ms"]
		if ms, err := strconv.ParseFloat(text, 64); err != nil || ms < 0 {
			add("--cycle-time-ms", "is "+strconv.Quote(text)+", must be a number of milliseconds")
		}
		set("HOROVOD_CYCLE_TIME", text)
	}
	if file := *f.launchers["timeline-filename"]; file != "" {
		set("HOROVOD_TIMELINE", file)
	}
	if f.on("timeline-mark-cycles") {
		set("HOROVOD_TIMELINE_MARK_CYCLES", "1")
	}
}

// levels maps horovodrun's names of log levels.
var levels = map[string]string{"trace": "debug", "warning": "warn", "fatal": "error"}

// Spell rewrites horovodrun's spellings that the flag parser does not support: -np becomes
// --num-proc, -H becomes --hosts, and log levels in capitals are lowered. args are those of a
// command with the flags fs; arguments from the first other word on belong to the program.
func Spell(fs *pflag.FlagSet, args []string) []string {
	out := make([]string, 0, len(args))
	for i := 0; i < len(args); i++ {
		name, value, joined := strings.Cut(args[i], "=")
		if args[i] == "--" || len(name) < 2 || name[0] != '-' {
			return append(out, args[i:]...)
		}
		switch name {
		case "-np":
			name = "--num-proc"
		case "-H":
			name = "--hosts"
		}
		if !joined && takesValue(fs, name) && i+1 < len(args) {
			i++
			value, joined = args[i], true
			if spelt(name) != "--log-level" {
				out = append(out, name, value)
				continue
			}
		}
		if spelt(name) == "--log-level" {
			value = level(value)
		}
		if joined {
			name += "=" + value
		}
		out = append(out, name)
	}
	return out
}

// takesValue reports whether the next word is the value of a flag.
func takesValue(fs *pflag.FlagSet, name string) bool {
	var f *pflag.Flag
	if long, ok := strings.CutPrefix(name, "--"); ok {
		f = fs.Lookup(spelt(long))
	} else if len(name) == 2 {
		f = fs.ShorthandLookup(name[1:])
	}
	return f != nil && f.NoOptDefVal == ""
}

func level(text string) string {
	small := strings.ToLower(text)
	if levels[small] != "" {
		return levels[small]
	}
	if slices.Contains([]string{"debug", "info", "warn", "error"}, small) {
		return small
	}
	return text
}
