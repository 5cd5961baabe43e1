package jobflags

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
)

// Join holds the flags of an agent that registers itself for a job. They have torchrun's names
// where torchrun has them.
type Join struct {
	Run     string // the run id, which names the job
	own     *Flags
	nodes   string
	perNode int
	conf    string
}

// AddJoin adds the flags to a command's set. As with torchrun, _ may be written for - in all of
// them.
func AddJoin(fs *pflag.FlagSet) *Join {
	j := &Join{own: newFlags(fs)}
	j.own.shared()
	fs.StringVar(&j.Run, j.own.of("name", "join-job"), "", "take part in this job, which is not scheduled; the first agent creates it (torchrun's --rdzv-id)")
	fs.StringVar(&j.nodes, j.own.of("rendezvous.nodes", "nnodes"), "1", "with --join-job: how many nodes, MIN:MAX or N")
	fs.IntVar(&j.perNode, j.own.of("rendezvous.workersPerNode", "nproc-per-node"), 1, "with --join-job: workers on every node")
	fs.StringVar(&j.conf, j.own.of("rendezvous", "rdzv-conf"), "", "with --join-job: times in seconds, such as last_call_timeout=30,join_timeout=600")
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	return j
}

// joining returns the words after `regroup agent` for a node that takes part by itself in the job
// of these flags, which runs a command: those of them that an agent has too.
func (f *Flags) joining(name string, command []string) []string {
	words := append([]string{"--join-job", name}, f.launch.join...)
	theirs := pflag.NewFlagSet("", pflag.ContinueOnError)
	AddJoin(theirs)
	f.fs.Visit(func(x *pflag.Flag) {
		if theirs.Lookup(x.Name) == nil || slices.Contains(words, "--"+x.Name) {
			return
		}
		values := []string{x.Value.String()}
		if many, ok := x.Value.(pflag.SliceValue); ok {
			values = many.GetSlice()
		}
		for _, v := range values {
			words = append(words, "--"+x.Name+"="+v)
		}
	})
	return append(append(words, "--"), command...)
}

// Spec returns the spec of a job that runs args, with its defaults. The error is Invalid with every
// field error, each named by its flag.
func (j *Join) Spec(args []string) (spec.Job, error) {
	r := &spec.Rendezvous{WorkersPerNode: j.perNode}
	var bad []spec.FieldError
	nodes, err := Workers(j.nodes)
	if err != nil {
		bad = append(bad, spec.FieldError{Path: "--nnodes", Message: fmt.Sprintf("%q is no number of nodes: write MIN:MAX, for example 2:4, or N", j.nodes)})
		nodes = spec.Workers{Min: 1, Max: 1} // reported once
	}
	r.Nodes = spec.NodeRange{Min: nodes.Min, Max: nodes.Max}
	bad = append(bad, ReadConf(j.conf, r)...)
	j.own.job.Name = j.Run
	s, more := j.own.fill(args)
	bad = append(bad, more...)
	s.Rendezvous, s.Workers = r, spec.Workers{}
	s = s.WithDefaults()
	for _, x := range s.Check() {
		if x.Path == "workers" || strings.HasPrefix(x.Path, "workers.") {
			continue // derived from the nodes
		}
		x.Path = j.own.flagOf(x.Path)
		bad = append(bad, x)
	}
	return s, errcode.Refuse(bad)
}

// noMeaning lists the keys of torchrun that have no effect here.
var noMeaning = map[string]string{
	"is_host": "no node hosts the store", "store_type": "there is no store to choose", "use_libuv": "there is no store of ours",
	"read_timeout": "there is no store to read", "timeout": "torchrun's c10d ignores it too: give join_timeout",
}

// notRead are the further keys that torchrun's c10d reads, and that have no meaning where the
// rendezvous has no store.
var notRead = []string{"store_type", "use_libuv", "read_timeout", "timeout", "cas_backoff_max_seconds", "protocol"}

// SplitConf divides the --rdzv-conf of a launcher, which may be quoted once more. torchrun reads
// the keys that it knows and passes over others: what is left for ReadConf are the known ones, and
// notes say which have no effect. is_host is for the launcher.
func SplitConf(text string) (known, isHost string, notes []string) {
	text = strings.TrimSpace(text)
	if n := len(text); n >= 2 && text[0] == text[n-1] && (text[0] == '\'' || text[0] == '"') {
		text = text[1 : n-1]
		notes = append(notes, "--rdzv-conf is quoted twice: it is read without the inner quotes")
	}
	var kept, without []string
	for item := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(item, "=")
		key = strings.TrimSpace(key)
		switch {
		case key == "is_host":
			isHost = strings.ToLower(strings.TrimSpace(value))
		case slices.Contains(notRead, key):
			without = append(without, key)
		case !ok || slices.Contains(confKeys, key):
			kept = append(kept, item)
		default:
			note := fmt.Sprintf("--rdzv-conf %s has no effect here: it is not known", key)
			if hint := spec.DidYouMean(key, confKeys); hint != "" {
				note += "; " + hint
			}
			notes = append(notes, note)
		}
	}
	if len(without) > 0 {
		notes = append(notes, fmt.Sprintf("--rdzv-conf %s has no effect here: there is no store of torchrun's", strings.Join(without, ", ")))
	}
	return strings.Join(kept, ","), isHost, notes
}

// confKeys are the keys that ReadConf knows.
var confKeys = []string{"close_timeout", "heartbeat_timeout", "join_timeout", "keep_alive_interval", "keep_alive_max_attempt", "last_call_timeout"}

// ReadConf reads torchrun's --rdzv-conf: key=value, separated by commas; the last value of a key
// wins. It reports all errors.
func ReadConf(text string, r *spec.Rendezvous) []spec.FieldError {
	times := map[string]*spec.Duration{
		"join_timeout": &r.JoinTimeout, "last_call_timeout": &r.LastCallTimeout, "close_timeout": &r.CloseTimeout,
		"keep_alive_interval": &r.KeepAliveInterval, "heartbeat_timeout": &r.HeartbeatTimeout,
	}
	var bad []spec.FieldError
	for item := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(item) == "" {
			continue
		}
		key, value, ok := strings.Cut(item, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		add := func(format string, args ...any) {
			bad = append(bad, spec.FieldError{Path: "--rdzv-conf " + key, Message: fmt.Sprintf(format, args...)})
		}
		d, isTime := times[key]
		switch {
		case !ok:
			add("has no value: write KEY=VALUE, separated by commas")
		case noMeaning[key] != "":
			add("has no meaning here: %s", noMeaning[key])
		case isTime:
			v, err := seconds(value)
			if err != nil || v <= 0 {
				add("is %q, must be a number of seconds above 0", value)
				continue
			}
			*d = spec.Duration(v)
		case key == "keep_alive_max_attempt":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 {
				add("is %q, must be a whole number of at least 1", value)
				continue
			}
			r.KeepAliveMaxAttempt = n
		default:
			bad = append(bad, spec.FieldError{
				Path: "--rdzv-conf " + key, Message: "is not known; there are " + strings.Join(confKeys, ", "), Hint: spec.DidYouMean(key, confKeys),
			})
		}
	}
	return bad
}

// seconds reads 30, 0.5 or 30s.
func seconds(text string) (time.Duration, error) {
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		return time.Duration(f * float64(time.Second)), nil
	}
	return time.ParseDuration(text)
}
