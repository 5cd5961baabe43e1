package jobflags

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/events/ident"
)

// A flag of another launcher has the same spelling and effect as there, or an error that names its
// replacement.
type launcherFlag struct {
	of       string // torchrun, horovodrun or torchx
	Spelling        // there; the first long name is its name here
	Answer
	known bool // a flag of this command has the same name and meaning
}

const (
	torchrun   = "torchrun"
	horovodrun = "horovodrun"
	torchx     = "torchx"
)

var launcherFlags = slices.Concat(ofTorchrun(), []launcherFlag{
	{horovodrun, "-np, --num-proc N", Answer{Same, "so many workers, or with --max-np at least so many"}, true},
	{horovodrun, "--min-np, --min-num-proc N", Answer{Same, "at least so many workers"}, true},
	{horovodrun, "--max-np, --max-num-proc N", Answer{Same, "at most so many workers"}, true},
	{horovodrun, "-H, --hosts HOST:SLOTS,...", Answer{Same, "use only these nodes; localhost is the node of the run's own server"}, true},
	{horovodrun, "--hostfile FILE", Answer{Same, "is --host-file: use only the nodes of this file"}, true},
	{horovodrun, "--host-discovery-script FILE", Answer{Same, "use only the nodes that it prints"}, true},
	{horovodrun, "--slots-per-host N", Answer{Same, "slots of hosts that are given without a number"}, true},
	{horovodrun, "--reset-limit N", Answer{Same, "regroups after the first generation"}, true},
	{horovodrun, "--elastic-timeout SECONDS", Answer{Same, "how long a job that has run may be below min"}, true},
	{horovodrun, "--start-timeout SECONDS", Answer{Same, "how long the first generation may take"}, true},
	{horovodrun, "--fusion-threshold-mb MB", Answer{Same, "HOROVOD_FUSION_THRESHOLD of the workers"}, false},
	{horovodrun, "--cycle-time-ms MS", Answer{Same, "HOROVOD_CYCLE_TIME of the workers"}, false},
	{horovodrun, "--timeline-filename FILE", Answer{Same, "HOROVOD_TIMELINE of the workers"}, false},
	{horovodrun, "--timeline-mark-cycles", Answer{Same, "HOROVOD_TIMELINE_MARK_CYCLES of the workers"}, false},
	{horovodrun, "--log-level LEVEL", Answer{Same, "also in capitals, and TRACE, WARNING and FATAL"}, true},
	{horovodrun, "--verbose", Answer{Same, "log what happens, of workers too"}, true},
	{horovodrun, "--output-filename DIR", Answer{Refused, "regroup logs JOB has the output of each worker: --rank, --node, --gen"}, false},
	{horovodrun, "--network-interfaces NAMES", Answer{Refused, "--advertise of regroup agent is the address of a node"}, false},
	{horovodrun, "--ssh-port PORT", Answer{Refused, "nothing is started by SSH: start regroup agent on each node"}, false},
	{horovodrun, "--autotune", Answer{Refused, "set REGROUP_BUCKET_BYTES with --env"}, false},
	{horovodrun, "--gloo", Answer{Noted, "Regroup's own engine is used"}, false},
	{horovodrun, "--mpi", Answer{Noted, "Regroup's own engine is used"}, false},
	{torchx, "-j, --j [MIN:]NODESxWORKERS", Answer{Same, "so many nodes with so many workers on each, as --nnodes and --nproc-per-node: 2x8, or 1:4x8"}, false},
})

func ofTorchrun() (all []launcherFlag) {
	for _, x := range TorchrunFlags {
		all = append(all, launcherFlag{torchrun, x.Spelling, x.Run, x.Name() == "max-restarts"})
	}
	return all
}

// Spelling is how another launcher writes a flag: -t, --tee STD.
type Spelling string

// Name is the first long name, without dashes.
func (s Spelling) Name() string {
	_, long, _ := strings.Cut(string(s), "--")
	return strings.FieldsFunc(long, func(r rune) bool { return r == ' ' || r == ',' })[0]
}

// Short is the one-letter name; empty = none.
func (s Spelling) Short() string {
	if w, _, _ := strings.Cut(string(s), ","); len(w) == 2 {
		return w[1:]
	}
	return ""
}

// Plain reports whether the flag takes no value.
func (s Spelling) Plain() bool {
	return !strings.Contains(string(s[strings.Index(string(s), "--"):]), " ")
}

// Add adds the flag to a set.
func (s Spelling) Add(fs *pflag.FlagSet, initial, usage string) *string {
	value := fs.StringP(s.Name(), s.Short(), initial, usage)
	if s.Plain() {
		fs.Lookup(s.Name()).NoOptDefVal = "true"
	}
	return value
}

// Cell is the flag in a table of Markdown.
func (s Spelling) Cell() string { return "`" + strings.ReplaceAll(string(s), "|", "\\|") + "`" }

// addLaunchers adds the launcher flags that no other flag implements. They are hidden in the help,
// which would be twice as long.
func (f *Flags) addLaunchers() {
	fs := f.fs
	f.launchers = map[string]*string{}
	for _, x := range launcherFlags {
		if x.known {
			continue
		}
		f.launchers[x.Name()] = x.Add(fs, "", x.of+": "+x.Does)
		_ = fs.MarkHidden(x.Name()) // the flag exists
	}
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName { return pflag.NormalizedName(spelt(name)) })
}

// spelt normalises the spelling of a launcher's flag.
func spelt(name string) string {
	name = strings.ReplaceAll(name, "_", "-")
	switch name {
	case "min-num-proc":
		return "min-np"
	case "max-num-proc":
		return "max-np"
	case "hostfile":
		return "host-file"
	}
	return name
}

// checkLaunchers adds an error for each flag that cannot be supported, and returns a note for each
// flag without effect.
func (f *Flags) checkLaunchers(add func(path, message string)) (notes []string) {
	for _, x := range launcherFlags {
		name := x.Name()
		if x.known || !f.fs.Changed(name) {
			continue
		}
		value := *f.launchers[name]
		switch {
		case x.Outcome == Noted:
			notes = append(notes, fmt.Sprintf("--%s has no effect here: %s", name, x.Does))
		case name == "redirects" && value == "0", x.Plain() && value == "false":
		case x.Outcome == Refused:
			add("--"+name, "of "+x.of+" cannot be honoured; instead: "+x.Does)
		case name == "node-rank" && value != "0":
			add("--"+name, "is "+value+": ranks follow from who is there. For a job of nodes that come by themselves: regroup agent --join-job ID -- COMMAND")
		}
	}
	return notes
}

// Launchers renders the table of docs/launchers.md.
func Launchers() string {
	var b strings.Builder
	b.WriteString("| of | flag | `regroup run` and `regroup submit` |\n|---|---|---|\n")
	for _, x := range launcherFlags {
		does := x.Does
		switch x.Outcome {
		case Noted:
			does = "accepted, and said to have no effect: " + does
		case Refused:
			does = "refused; instead: " + does
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", x.of, x.Cell(), does)
	}
	return b.String()
}

// Localhost replaces the names of this machine in horovodrun's host list by the name of its node.
func Localhost(hosts string, node ident.NodeID) string {
	all := strings.Split(hosts, ",")
	for i, h := range all {
		name, slots, found := strings.Cut(h, ":")
		if slices.Contains([]string{"localhost", "127.0.0.1"}, strings.TrimSpace(name)) {
			if all[i] = string(node); found {
				all[i] += ":" + slots
			}
		}
	}
	return strings.Join(all, ",")
}
