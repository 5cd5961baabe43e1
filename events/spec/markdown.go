package spec

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// specField describes a field of the job file.
type specField struct {
	path string // names with dots, as in errors
	what string // a sentence, with its limits
}

// specFields is the reference of the job file, in its order. Types and defaults come from Job
// itself.
var specFields = []specField{
	{"version", "Version of this format: v1."},
	{"name", "Name of the job; its id begins with it. A label of RFC 1123 (lower-case letters, digits and dashes) of at most 58 characters. Required."},
	{"command", "Program and arguments, present on every node. `${local_rank}` in an argument is replaced with recovery by restart. Required."},
	{"workdir", "Absolute directory in which workers run, present on every node. Default: the agent's own."},
	{"env", "Variables of the workers. Those that the agent sets are refused, see [environment.md](environment.md)."},
	{"workers.min", "Minimum number for training. At least 1."},
	{"workers.max", "Maximum number. At least `workers.min`, at most 100000."},
	{"recovery", "How workers survive a fault: `restart` (any program: all processes are started again) or `in-process` (processes with the SDK keep running)."},
	{"failures.max", "More failures than this within `failures.per` end the job; planned changes never count. 0 = the first one does. At most 10000."},
	{"failures.per", "Length of that window."},
	{"failures.sameStep", "This many consecutive failures at one step end the job: the data or the code causes them. 1 to 1000."},
	{"elastic.lastCall", "How long the round waits for further members once `workers.min` is reached."},
	{"elastic.rejoinWithin", "Time for a member that peers have lost to rejoin."},
	{"elastic.startWithin", "A job whose first generation has places and is not complete after this fails."},
	{"elastic.timeout", "A job that has run and is below `workers.min` for this long fails, as with Horovod's `--elastic-timeout`."},
	{"elastic.settle", "How long growing waits for others that arrive at the same time."},
	{"elastic.resetLimit", "Generations after the first, planned ones included, as with Horovod's `--reset-limit`. 0 = none. Default: no limit."},
	{"health.hang", "Workers hang if none makes a step for this long, and are replaced. At least 10s, and longer than the longest pause of a healthy job. Default: never."},
	{"stop.signal", "Signal with which workers are stopped: SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP or SIGQUIT."},
	{"stop.grace", "Time after the signal before they are killed."},
	{"data.samples", "Samples of one epoch, for the ledger. At most 2^48. Default: as the workers report."},
	{"labels", "Names and values for users; Regroup ignores them."},
	{"rendezvous.external", "Always true: the job's nodes register themselves (`regroup agent --join-job`). Without this section the scheduler places the job."},
	{"rendezvous.nodes.min", "Minimum number of nodes in a round."},
	{"rendezvous.nodes.max", "Maximum number of nodes in a round; times `workersPerNode` at most 100000."},
	{"rendezvous.workersPerNode", "Workers on each node."},
	{"rendezvous.joinTimeout", "How long a node waits in a round that does not complete."},
	{"rendezvous.lastCallTimeout", "How long a round with its minimum number of nodes waits for more."},
	{"rendezvous.closeTimeout", "Timeout of closing the rendezvous."},
	{"rendezvous.keepAliveInterval", "This times `keepAliveMaxAttempt` is how long a suspected node stays without a decision of discovery."},
	{"rendezvous.keepAliveMaxAttempt", "See `keepAliveInterval`."},
	{"rendezvous.heartbeatTimeout", "Timeout of an agent's request to the rendezvous, which is then repeated."},
}

const specIntro = `# Job file

Generated from the code by ` + "`make generate`" + `. ` + "`regroup run -f FILE` and `regroup submit -f FILE`" + ` read it, in YAML or JSON; flags take precedence. A field that does not exist
is an error, with the nearest one that does. Times are written as 500ms, 30s or 1h.

| field | type | default | what |
|---|---|---|---|
`

// Markdown renders the reference of the job file for docs/jobfile.md.
func Markdown() string {
	defaults := map[string]string{}
	filled := Job{Rendezvous: &Rendezvous{}}.WithDefaults()
	filled.Workers = Workers{}
	types := map[string]string{}
	specTree(reflect.ValueOf(filled), "", func(path string, v reflect.Value) {
		types[path] = specType(v.Type())
		for v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		if text, err := json.Marshal(v.Interface()); err == nil && !v.IsZero() {
			defaults[path] = "`" + strings.Trim(string(text), `"`) + "`"
		}
	})
	var b strings.Builder
	b.WriteString(specIntro)
	for _, f := range specFields {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.path, types[f.path], defaults[f.path], f.what)
	}
	return b.String()
}

// specTree calls fn with each field of a spec that is not itself an object with fields.
func specTree(v reflect.Value, prefix string, fn func(path string, v reflect.Value)) {
	for i := range v.NumField() {
		f, path := v.Field(i), JoinPath(prefix, JSONName(v.Type().Field(i)))
		inner := f
		if inner.Kind() == reflect.Pointer && inner.Type().Elem().Kind() == reflect.Struct {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct {
			specTree(inner, path, fn)
			continue
		}
		fn(path, f)
	}
}

// specType returns the name of a type in the reference of the job file.
func specType(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[Duration]():
		return "time"
	case t.Kind() == reflect.Pointer:
		return specType(t.Elem())
	case t.Kind() == reflect.Slice:
		return "list of " + specType(t.Elem())
	case t.Kind() == reflect.Map:
		return "names with " + specType(t.Elem())
	case t.Kind() == reflect.String:
		return "text"
	case t.Kind() == reflect.Bool:
		return "true or false"
	}
	return "number"
}

// JSONName returns the name of a field in JSON; empty = its fields belong to the enclosing object.
func JSONName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "" && !f.Anonymous {
		return f.Name
	}
	return name
}
