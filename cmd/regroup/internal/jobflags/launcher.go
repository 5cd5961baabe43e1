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
	of       string // torchrun or horovodrun
	Spelling        // there; the first long name is its name here
	does     string // for the documentation; for a refused flag its replacement
	outcome  outcome
	known    bool // a flag of this command has the same name and meaning
}

type outcome int

const (
	honoured outcome = iota
	noted            // has no effect here, which is reported
	refused          // is an error
)

const (
	torchrun   = "torchrun"
	horovodrun = "horovodrun"
)

var launcherFlags = []launcherFlag{
	{torchrun, "--nproc-per-node N|auto|cpu|gpu", "workers on each node; the words count this machine's processors or GPUs", honoured, false},
	{torchrun, "--nnodes N|MIN:MAX", "times --nproc-per-node, how many workers; with a server of the run's own there is one node", honoured, false},
	{torchrun, "--max-restarts N", "failures within an hour that the job survives; 20 where it is not given, with torchrun 0", honoured, true},
	{torchrun, "--standalone", "a server of the run's own, whatever else is configured or runs", honoured, false},
	{torchrun, "--rdzv-id ID", "name of the job", honoured, false},
	{torchrun, "--rdzv-conf KEY=VALUE,...", "join_timeout is --start-timeout; of the others it is said that they have no meaning", honoured, false},
	{torchrun, "--rdzv-backend NAME", "Regroup's own rendezvous is used", noted, false},
	{torchrun, "--rdzv-endpoint HOST:PORT", "the workers meet through the server: --server, or one of the run's own", noted, false},
	{torchrun, "-m, --module", "the program is a Python module: python3 -u -m", honoured, false},
	{torchrun, "--no-python", "the program is run as it is", honoured, false},
	{torchrun, "--node-rank 0", "of one node; another rank is refused: ranks follow from who is there", honoured, false},
	{torchrun, "--master-addr HOST", "workers get MASTER_ADDR of the agent that has rank 0", noted, false},
	{torchrun, "--master-port PORT", "workers get MASTER_PORT of the agent that has rank 0", noted, false},
	{torchrun, "--local-addr HOST", "--advertise of regroup agent is the address of a node", noted, false},
	{torchrun, "--log-dir DIR", "regroup logs JOB has the output of each worker: --rank, --node, --gen", refused, false},
	{torchrun, "-r, --redirects STD", "0 is the default here; output is shown and kept: regroup logs JOB", refused, false},
	{torchrun, "-t, --tee STD", "all output is shown here and kept: regroup logs JOB", noted, false},
	{torchrun, "--local-ranks-filter RANKS", "regroup logs JOB -f --rank RANKS", refused, false},
	{torchrun, "--start-method NAME", "workers are programs of their own, nothing is forked", noted, false},
	{torchrun, "--role NAME", "ROLE_NAME of the workers", honoured, false},
	{torchrun, "--monitor-interval SECONDS", "the end of a worker is seen at once", noted, false},
	{horovodrun, "-np, --num-proc N", "so many workers, or with --max-np at least so many", honoured, true},
	{horovodrun, "--min-np, --min-num-proc N", "at least so many workers", honoured, true},
	{horovodrun, "--max-np, --max-num-proc N", "at most so many workers", honoured, true},
	{horovodrun, "-H, --hosts HOST:SLOTS,...", "use only these nodes; localhost is the node of the run's own server", honoured, true},
	{horovodrun, "--host-discovery-script FILE", "use only the nodes that it prints", honoured, true},
	{horovodrun, "--slots-per-host N", "slots of hosts that are given without a number", honoured, true},
	{horovodrun, "--reset-limit N", "regroups after the first generation", honoured, true},
	{horovodrun, "--elastic-timeout SECONDS", "how long a job that has run may be below min", honoured, true},
	{horovodrun, "--start-timeout SECONDS", "how long the first generation may take", honoured, true},
	{horovodrun, "--fusion-threshold-mb MB", "HOROVOD_FUSION_THRESHOLD of the workers", honoured, false},
	{horovodrun, "--cycle-time-ms MS", "HOROVOD_CYCLE_TIME of the workers", honoured, false},
	{horovodrun, "--timeline-filename FILE", "HOROVOD_TIMELINE of the workers", honoured, false},
	{horovodrun, "--timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES of the workers", honoured, false},
	{horovodrun, "--log-level LEVEL", "also in capitals, and TRACE, WARNING and FATAL", honoured, true},
	{horovodrun, "--verbose", "log what happens, of workers too", honoured, true},
	{horovodrun, "--output-filename DIR", "regroup logs JOB has the output of each worker: --rank, --node, --gen", refused, false},
	{horovodrun, "--network-interfaces NAMES", "--advertise of regroup agent is the address of a node", refused, false},
	{horovodrun, "--ssh-port PORT", "nothing is started by SSH: start regroup agent on each node", refused, false},
	{horovodrun, "--autotune", "set REGROUP_BUCKET_BYTES with --env", refused, false},
	{horovodrun, "--gloo", "Regroup's own engine is used", noted, false},
	{horovodrun, "--mpi", "Regroup's own engine is used", noted, false},
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
		f.launchers[x.Name()] = x.Add(fs, "", x.of+": "+x.does)
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
		case x.outcome == noted:
			notes = append(notes, fmt.Sprintf("--%s has no effect here: %s", name, x.does))
		case name == "redirects" && value == "0", x.Plain() && value == "false":
		case x.outcome == refused:
			add("--"+name, "of "+x.of+" cannot be honoured; instead: "+x.does)
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
		does := x.does
		switch x.outcome {
		case noted:
			does = "accepted, and said to have no effect: " + does
		case refused:
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
