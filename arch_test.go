package regroup_test

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// The rules of the tree, as a test. Patterns are folders below the module; "/..." takes in what is
// below.

const module = "github.com/regroup-io/regroup"

// pure packages decide; they do no I/O, know no clock, no goroutine and no randomness, so that
// every decision can be replayed.
var pure = []string{
	"services/localhealth", "services/discovery/liveness", "services/scheduler/plan", "services/rendezvous/round", "services/registry/job",
	"agent/worker", "agent/workerenv", "collective/schedule", "elastic/reshard",
	"events/access",
}

var pureStd = []string{"errors", "fmt", "iter", "slices", "maps", "cmp", "sort", "strings", "strconv", "math", "math/bits", "time"}

// layer says what a package may import of ours and of others. Standard library is free unless std
// is set.
type layer struct {
	pkg    string
	ours   []string // folders, "/..." allowed
	others []string // module path prefixes
	std    []string // nil = all of it
	why    string
}

var layers = []layer{
	{"services/localhealth", nil, nil, pureStd, "decisions are replayable"},
	{"services/discovery/liveness", []string{"events", "events/broker", "events/devices", "events/errcode", "events/figures", "events/ident", "events/leases", "events/limits", "events/spares", "events/spec", "events/tracing", "internal/english", "services/localhealth"}, nil, pureStd, "decisions are replayable"},
	{"services/scheduler/plan", []string{"events", "events/devices", "events/errcode", "events/ident", "events/leases", "events/spec", "events/tracing", "internal/english"}, nil, pureStd, "decisions are replayable"},
	{"services/rendezvous/round", []string{"events", "events/columns", "events/errcode", "events/ident", "events/leases", "events/limits", "events/tables", "events/spec", "events/tracing", "internal/english"}, nil, pureStd, "decisions are replayable"},
	{"services/registry/job", []string{"events", "events/errcode", "events/ident", "events/limits", "events/tables", "events/spec", "events/tracing", "internal/english", "services/localhealth"}, nil, pureStd, "decisions are replayable"},
	{"agent/workerenv", []string{"events", "events/ident", "events/spec", "internal/workerprotocol"}, nil, pureStd, "decisions are replayable"},
	{"agent/worker", []string{"agent/workerenv", "events", "events/errcode", "events/ident", "events/limits", "events/spares", "events/tables", "events/spec", "events/tracing", "internal/workerprotocol"}, nil, pureStd, "decisions are replayable"},
	{"collective/schedule", nil, nil, pureStd, "schedules are mathematics"},
	{"events/limits", nil, nil, nil, "every package may bound what it reads"},
	{"events/spec", []string{"events/limits"}, nil, nil, "bodies of events hold a specification"},
	{"events/columns", nil, nil, pureStd, "tables of every kind are encoded with it"},
	{"events/broker", nil, nil, nil, "whatever transports messages implements it"},
	{"events/errcode", []string{"events/limits", "events/spec"}, nil, nil, "every package may refuse"},
	{"events/ident", []string{"events/errcode", "events/limits", "events/spec", "internal/english"}, nil, nil, "every package names nodes and jobs"},
	{"events/figures", nil, nil, pureStd, "discovery and the command line compare alike"},
	{"events/tracing", []string{"events/ident"}, nil, nil, "every process derives the same traces"},
	{"events/tables", []string{"events/columns", "events/errcode", "events/ident", "events/limits"}, nil, nil, "facts and views have lists of workers"},
	{"events/bodies", []string{"events", "events/errcode", "events/ident", "events/limits", "events/tables", "events/spec"}, nil, nil, "every reader of messages decodes alike"},
	{"internal/english", nil, nil, pureStd, "messages of every layer count things"},
	{"events", []string{"events/broker", "events/columns", "events/devices", "events/errcode", "events/figures", "events/ident", "events/leases", "events/limits", "events/spares", "events/tables", "events/spec"}, nil, nil, "it is the language that everyone speaks"},
	{"events/access", []string{"events", "events/errcode", "events/ident", "events/usage"}, nil, pureStd, "who may do what is decided from the catalogue alone"},
	{"events/cloudevent", []string{"events", "events/bodies", "events/broker", "events/errcode", "events/limits", "events/spec", "events/tracing"}, []string{"github.com/cloudevents/sdk-go/v2"}, nil, "it is the wire form, nothing else"},
	{"events/document", []string{"events", "events/broker", "events/errcode", "events/limits"}, []string{"github.com/klauspost/compress/zstd"}, nil, "it is the stored form, nothing else"},
	{"events/output", []string{"events/ident"}, nil, pureStd, "writers and readers of output share it"},
	{"events/memory", []string{"events", "events/broker", "events/errcode", "events/tracing"}, nil, nil, "it stands in for the broker"},
	{"docs", nil, nil, nil, "it is data"},
	{"internal/golden", nil, nil, nil, "tests of every layer import it"},
	{"internal/durable", nil, nil, nil, "it is about files only"},
	{"internal/errorreport", nil, nil, nil, "programs, the agent and the launcher agree on a file"},
	{"internal/readfile", nil, nil, nil, "it is about files only"},
	{"internal/workerprotocol", []string{"events/limits"}, nil, nil, "agents and workers speak it, and neither imports the other"},
	{"internal/version", nil, nil, []string{"runtime", "runtime/debug"}, "every program and library says it"},
	{"internal/version/copies", nil, nil, nil, "it changes files, and tests import it"},
	{"internal/wait", nil, nil, nil, "every package may wait"},
	{"internal/race", nil, nil, nil, "it is a constant"},
	{"internal/spawn", nil, []string{"golang.org/x/sys"}, nil, "it starts processes, nothing else"},
	{"events/eventstest", []string{"events", "events/broker", "events/errcode", "events/ident", "events/tables", "events/spec", "events/tracing", "internal/wait"}, nil, nil, "it judges every implementation alike"},
	{"jetstream/identity", []string{"events", "events/access", "events/errcode", "events/ident", "internal/durable"}, []string{"github.com/nats-io/jwt", "github.com/nats-io/nkeys", "golang.org/x/sys"}, nil, "it is about files only"},
	{"jetstream/backup", []string{"events", "events/errcode", "internal/durable", "internal/english", "internal/wait"}, []string{"github.com/nats-io"}, nil, "it copies streams, whatever is in them"},
	{"jetstream/inspect", []string{"events", "events/broker"}, []string{"github.com/nats-io", "golang.org/x/sync/errgroup"}, nil, "it asks about streams, whatever is in them"},
	{"jetstream/shares", []string{"events", "events/access", "events/errcode", "jetstream/identity"}, []string{"github.com/nats-io", "golang.org/x/time"}, nil, "it counts what each identity takes"},
	{"jetstream/server", []string{"events/access", "events/errcode", "internal/durable", "internal/wait", "jetstream/identity", "jetstream/shares"}, []string{"github.com/nats-io"}, nil, "it runs a broker, and knows nothing of what is stored"},
	{"jetstream/presence", []string{"events"}, []string{"github.com/nats-io/nats.go"}, nil, "it concludes, and asks nobody"},
	{"jetstream/refusal", nil, []string{"github.com/nats-io/nats.go"}, nil, "it reads what a server says"},
	{"jetstream/topology", []string{"events", "events/access"}, []string{"github.com/nats-io/nats.go"}, nil, "it is data"},
	{"jetstream", []string{"events", "events/access", "events/broker", "events/errcode", "events/tracing", "internal/wait", "jetstream/backup", "jetstream/identity", "jetstream/inspect", "jetstream/presence", "jetstream/refusal", "jetstream/server", "jetstream/shares", "jetstream/topology"}, []string{"github.com/nats-io", "golang.org/x/sync/errgroup"}, nil, "it is the only adapter to NATS"},
	{"internal/escape", []string{"events/output"}, nil, append([]string{"reflect", "unicode", "unicode/utf16", "unicode/utf8"}, pureStd...), "it reads text, nothing else"},
	{"internal/exitcode", []string{"events", "events/errcode"}, nil, append([]string{"context"}, pureStd...), "views of a job and the command line share it"},
	{"internal/specfile", []string{"events/errcode", "events/spec", "internal/english"}, []string{"github.com/goccy/go-yaml"}, nil, "the command line and the gateway read job files alike"},
	{"internal/freeport", nil, nil, nil, "tests of every layer import it"},
	{"jetstream/jetstreamtest", []string{"events", "events/broker", "events/errcode", "events/eventstest", "internal/freeport", "jetstream", "jetstream/server"}, []string{"go.uber.org/goleak"}, nil, "it starts servers for tests"},
	{"services/controller", []string{"events", "events/bodies", "events/broker", "events/cloudevent", "events/document", "events/errcode", "events/ident", "events/tracing", "internal/english", "internal/wait"}, []string{"golang.org/x/sync/errgroup"}, nil, "it takes ports and an observer"},
	{"services/controller/controllertest", []string{"events", "events/broker", "events/cloudevent", "events/document", "events/errcode"}, nil, nil, "tests of every service import it"},
	{"services/discovery", []string{"events", "events/bodies", "events/broker", "events/document", "events/errcode", "events/ident", "events/spec", "internal/spawn", "internal/wait", "services/controller", "services/discovery/liveness"}, nil, nil, "no service knows another"},
	{"services/scheduler", []string{"events", "events/broker", "events/document", "events/errcode", "events/ident", "internal/english", "services/controller", "services/scheduler/plan"}, nil, nil, "no service knows another"},
	{"services/rendezvous", []string{"events", "events/bodies", "events/broker", "events/document", "events/errcode", "events/ident", "services/controller", "services/rendezvous/round"}, nil, nil, "no service knows another"},
	{"services/registry", []string{"events", "events/bodies", "events/broker", "events/document", "events/errcode", "events/ident", "events/tables", "events/spec", "internal/wait", "services/controller", "services/registry/job"}, nil, nil, "no service knows another"},
	{"agent/capture", []string{"agent/traceback", "events", "events/output", "events/tables"}, []string{"golang.org/x/sys"}, nil, "it reads pipes, nothing else"},
	{"agent/cgroup", []string{"agent/procfs", "events/spec", "internal/workerprotocol"}, []string{"golang.org/x/sys"}, nil, "it is about control groups only"},
	{"agent/errorfile", []string{"agent/traceback", "agent/worker", "events", "events/limits", "events/tables", "internal/readfile"}, nil, nil, "it reads a file of a worker, nothing else"},
	{"events/devices", nil, nil, []string{"time"}, "documents and requests have it"},
	{"events/usage", []string{"events", "events/ident"}, nil, nil, "an agent says it, a gateway hears it"},
	{"events/leases", nil, nil, []string{"time"}, "facts and documents have it"},
	{"events/spares", []string{"events/ident"}, nil, nil, "documents and requests have it"},
	{"agent/gpus", []string{"events/devices", "events/errcode", "events/limits", "internal/spawn", "internal/wait"}, []string{"golang.org/x/sys"}, nil, "it looks at the machine, and decides nothing"},
	{"agent/logs", []string{"events", "events/broker", "events/errcode", "events/ident", "events/output", "internal/english", "internal/wait"}, []string{"golang.org/x/time"}, nil, "it writes to the log alone"},
	{"agent/procfs", nil, nil, nil, "it reads what the kernel tells, and decides nothing"},
	{"agent/traceback", []string{"events/limits", "events/tables"}, nil, nil, "it reads lines, nothing else"},
	{"agent", []string{"agent/checkpoints", "agent/errorfile", "agent/logs", "agent/meter", "agent/statedir", "agent/submitenv", "agent/tcpstore", "agent/worker", "agent/workerapi", "agent/workerenv", "events", "events/bodies", "events/broker", "events/cloudevent", "events/devices", "events/errcode", "events/figures", "events/ident", "events/limits", "events/output", "events/spares", "events/spec", "events/tracing", "events/usage", "internal/english", "internal/errorreport", "internal/spawn", "internal/wait", "internal/workerprotocol"}, []string{"golang.org/x/sync/errgroup", "github.com/oklog/ulid"}, nil, "it talks to services through ports only"},
	{"agent/preflight", []string{"events/devices", "events/figures", "events/limits", "internal/spawn"}, nil, nil, "it runs a program that measures, and decides nothing"},
	{"agent/proc", []string{"agent/capture", "agent/cgroup", "agent/procfs", "agent/traceback", "agent/worker", "agent/workerenv", "events", "events/errcode", "events/ident", "events/limits", "events/output", "events/spec", "events/tables", "internal/readfile", "internal/spawn"}, []string{"golang.org/x/sys"}, nil, "it drives processes, nothing else"},
	{"client", []string{"events", "events/cloudevent", "events/errcode", "events/ident", "events/limits", "events/spec", "internal/wait", "services/cluster/view"}, nil, nil, "programs of others import it"},
	// What people and programs see of a cluster is made once: the command line prints it, and the
	// gateway serves it.
	{"services/cluster/view", []string{"events", "events/broker", "events/errcode", "events/ident", "events/limits", "events/output", "events/tables", "events/spec", "internal/english", "internal/exitcode"}, nil, append([]string{"encoding/json", "path", "unicode/utf8"}, pureStd...), "programs of others import it, and it is computed from documents and facts alone"},
	{"services/cluster/waterfall", []string{"events", "events/errcode", "events/ident", "events/tracing", "services/cluster/view"}, []string{"go.opentelemetry.io/collector/pdata", "go.opentelemetry.io/proto/otlp", "google.golang.org/protobuf"}, nil, "it reads stored spans, nothing else"},
	{"services/cluster/timeline", []string{"events", "events/ident", "events/spec", "events/tables", "internal/english", "internal/escape", "services/cluster/view"}, nil, nil, "it is computed from facts alone"},
	{"services/cluster/statehash", []string{"events", "events/ident", "events/tables", "internal/english"}, nil, nil, "it is computed from facts alone"},
	// The command line and the gateway are both clients of a cluster: this is how they ask it.
	{"services/cluster", []string{"events", "events/bodies", "events/broker", "events/cloudevent", "events/document", "events/errcode", "events/ident", "events/output", "events/spec", "events/tracing", "internal/english", "internal/escape", "internal/wait", "services/cluster/view", "services/scheduler/plan"}, []string{"golang.org/x/sync/errgroup", "github.com/oklog/ulid"}, nil, "it asks through ports only, and decides nothing: a forecast is the scheduler's own machine run ahead"},
	{"services/cluster/clustertest", []string{"events", "events/bodies", "events/broker", "events/cloudevent", "events/ident", "events/memory", "events/output", "events/tables", "services/controller/controllertest"}, []string{"golang.org/x/sync/errgroup"}, nil, "tests of clients import it"},
	{"services/gateway/endpoint", []string{"events/errcode"}, nil, nil, "it opens an address, nothing else"},
	{"services/gateway/otlp", []string{"events/errcode", "events/limits", "events/spec"}, []string{"go.opentelemetry.io/collector/pdata"}, nil, "it reads a protocol of others, nothing else"},
	{"services/gateway/tokens", []string{"events/errcode", "events/ident", "internal/durable"}, nil, nil, "it keeps a file, nothing else"},
	{"services/gateway/webhooks", []string{"events", "events/errcode", "events/ident", "events/limits", "events/spec", "events/tracing", "internal/durable", "internal/escape", "internal/wait", "services/cluster/view", "services/gateway/feed"}, []string{"golang.org/x/sync/errgroup", "github.com/oklog/ulid"}, nil, "it sends what the feed has"},
	{"services/gateway/openapi", nil, nil, nil, "it turns types into schemas, nothing else"},
	{"services/gateway/dashboard", []string{"events/errcode"}, nil, nil, "it serves files, nothing else"},
	{"services/gateway/brokers", []string{"events/broker", "internal/english"}, []string{"github.com/prometheus/client_golang"}, nil, "the command line shows it too"},
	{"services/gateway/feed", []string{"events", "events/bodies", "events/broker", "events/cloudevent", "events/document", "events/errcode", "events/ident", "events/output", "events/tables", "events/usage", "internal/wait", "services/cluster", "services/cluster/view", "services/gateway/brokers"}, []string{"golang.org/x/sync/errgroup"}, nil, "it reads through ports only"},
	{"services/gateway", []string{"events", "events/broker", "events/cloudevent", "events/errcode", "events/ident", "events/limits", "events/output", "events/tables", "events/spec", "events/tracing", "events/usage", "internal/english", "internal/specfile", "services/cluster/...", "services/gateway/..."}, []string{"golang.org/x/sync/errgroup", "github.com/oklog/ulid", "github.com/prometheus/client_golang"}, nil, "it is a client of the services, and decides nothing"},
	{"agent/meter", []string{"agent/procfs", "events/usage"}, nil, nil, "it reads what the kernel tells, and decides nothing"},
	{"agent/statedir", []string{"events/errcode", "events/ident", "internal/durable"}, nil, nil, "it keeps one directory, nothing else"},
	{"agent/checkpoints", []string{"events/errcode", "events/ident"}, nil, nil, "it keeps a folder of folders, nothing else"},
	{"agent/submitenv", []string{"events/errcode", "events/ident", "internal/durable", "internal/readfile", "internal/workerprotocol"}, nil, nil, "it keeps a folder of files, nothing else"},
	{"agent/tcpstore", []string{"events/limits"}, nil, nil, "it serves a protocol of others, nothing else"},
	{"agent/workerapi", []string{"internal/workerprotocol"}, nil, nil, "it serves HTTP, nothing else"},
	// collective/gpu too: the library lives in workers, and loads NCCL and CUDA only when a worker
	// asks for a GPU.
	{"collective/cabi", []string{"collective/...", "elastic", "elastic/samples", "internal/version"}, nil, nil, "it gives C what Go programs import"},
	{"collective/nccl", nil, []string{"github.com/ebitengine/purego"}, nil, "it alone reaches native libraries"},
	{"collective/nccl/nccltest", []string{"collective/kernel"}, []string{"github.com/ebitengine/purego", "go.uber.org/goleak"}, nil, "it fakes native libraries for tests"},
	{"collective/gpu", []string{"collective", "collective/internal/serial", "collective/kernel", "collective/nccl", "collective/schedule"}, nil, nil, "it reaches native libraries through collective/nccl alone"},
	{"collective/internal/frame", []string{"collective/kernel"}, nil, nil, "control and exec speak it"},
	{"collective/internal/control", []string{"collective/internal/frame", "collective/shm"}, nil, nil, "it never moves data"},
	{"collective/...", []string{"collective/..."}, []string{"golang.org/x/sys", "golang.org/x/sync/semaphore"}, nil, "training traffic never depends on the control plane"},
	{"elastic", []string{"collective/...", "elastic/checkpoint", "elastic/internal/...", "elastic/reshard", "elastic/samples", "elastic/shards", "elastic/statesync", "internal/wait", "internal/workerprotocol"}, nil, nil, "a worker has no NATS credentials"},
	{"elastic/samples", []string{"internal/workerprotocol"}, nil, append([]string{"encoding/json"}, pureStd...), "every rank computes the same order"},
	{"elastic/reproducible", []string{"collective", "collective/kernel", "elastic", "elastic/samples", "internal/errorreport"}, []string{"github.com/zeebo/xxh3"}, nil, "programs use it as they use elastic"},
	{"elastic/reshard", nil, nil, pureStd, "every member computes the same plan"},
	{"elastic/shards", []string{"collective", "elastic/checkpoint", "elastic/internal/pages", "elastic/reshard", "elastic/statesync"}, []string{"github.com/zeebo/xxh3", "golang.org/x/sync/errgroup"}, nil, "it moves state that it does not understand"},
	{"elastic/statesync", []string{"collective", "collective/kernel", "elastic/checkpoint", "elastic/internal/pages", "internal/wait"}, []string{"github.com/zeebo/xxh3"}, nil, "it moves state that it does not understand"},
	{"elastic/internal/checkpointwriter", []string{"collective", "elastic/checkpoint", "elastic/internal/agentclient", "elastic/shards", "elastic/statesync"}, nil, nil, "it writes what package elastic has committed"},
	{"elastic/internal/agentwatch", []string{"collective", "elastic/internal/agentclient", "elastic/internal/canceler", "elastic/internal/updates", "internal/wait", "internal/workerprotocol"}, nil, nil, "it listens to the agent and tells the others of the package"},
	{"elastic/internal/vote", []string{"elastic/internal/updates"}, nil, nil, "it is what ranks say of a commit"},
	{"elastic/internal/pages", nil, []string{"golang.org/x/sys/unix"}, nil, "it is about memory only"},
	{"elastic/internal/...", []string{"collective", "elastic/checkpoint", "elastic/samples", "internal/wait", "internal/workerprotocol"}, nil, nil, "package elastic is built of it"},
	{"elastic/checkpoint", []string{"elastic/reshard"}, []string{"github.com/zeebo/xxh3", "golang.org/x/sync/errgroup"}, nil, "it is about files only"},
	{"elastic/elastictest", []string{"collective/inproc", "internal/workerprotocol"}, nil, nil, "tests of elastic itself import it"},
	{"deploy/systemd", nil, nil, []string{"embed"}, "it has files, nothing else"},
	{"examples/...", []string{"collective/...", "elastic", "elastic/reproducible", "elastic/samples", "examples/..."}, nil, nil, "people copy it"},
}

// concurrent packages are the only ones in which goroutines begin, by a go statement, a group's Go
// method or a function that runs later (time.AfterFunc, context.AfterFunc). Who audits locking
// reads these.
var concurrent = []string{
	"services/controller", "services/controller/controllertest", "services/gateway", "services/gateway/feed", "services/gateway/webhooks", "events/memory", "events/eventstest", "jetstream", "jetstream/inspect", "jetstream/server", "jetstream/shares",
	"agent", "agent/capture", "agent/gpus", "agent/logs", "agent/proc", "agent/tcpstore", "agent/workerapi", "collective", "collective/internal/control",
	"collective/internal/exec", "collective/internal/serial", "collective/internal/tagged", "collective/queue", "collective/tcp", "collective/shm", "collective/inproc", "collective/gpu", "collective/nccl", "collective/nccl/nccltest",
	"collective/cabi", "collective/deathwatch", "elastic", "elastic/checkpoint", "elastic/shards", "elastic/statesync", "elastic/internal/agentclient", "elastic/internal/checkpointwriter",
	"elastic/elastictest", "cmd/regroup/run", "cmd/regroup/torchrun", "cmd/regroup/serve",
	"cmd/regroup/internal/boot", "services/cluster", "services/cluster/clustertest", "internal/wait", "e2e/...",
}

// large are the packages that may have more source files than maxFiles, or more lines than
// maxLines, and why.
var large = map[string]string{
	"e2e/sim":                   "one world: its hosts, its faults, its checks and its language of scenarios share their types",
	"collective/cabi":           "the exports of one C library, which cgo wants in its main package",
	"services/registry/job":     "one machine: each transition reads and changes the state of one job; rules that need no state are in events",
	"services/rendezvous/round": "one machine: each transition reads and changes the state of one round; tables are encoded by events/columns",
	"services/gateway":          "the routes of one server share its feed, rights and streams; what has state of its own is in packages below",
}

var bannedNames = []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "base", "core", "lib", "types", "models", "manager", "handler", "impl", "interfaces"}

const (
	maxFile     = 500
	maxTestFile = 800
	maxFiles    = 15 // of a package, without its tests
	maxLines    = 2500
	maxComment  = 100 // columns of a line of comment, a tab as four
)

type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	CgoFiles   []string
	Imports    []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,CgoFiles,Imports", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func folder(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
}

func matches(pattern, name string) bool {
	if root, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == root || strings.HasPrefix(name, root+"/")
	}
	return pattern == name
}

func in(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, name) })
}

// stale reports what matched nothing: a rule about something that is gone hides that its subject
// has a new name.
func stale(t *testing.T, what string, patterns []string, names []string) {
	t.Helper()
	for _, p := range patterns {
		if !slices.ContainsFunc(names, func(n string) bool { return matches(p, n) }) {
			t.Errorf("%s: %q matches nothing", what, p)
		}
	}
}

// TestImports checks the direct imports of every package that has a layer; every other package of
// ours must be a command or a test rig.
func TestImports(t *testing.T) {
	imported := map[int][]string{} // by layer
	for _, p := range packages(t) {
		name := folder(p.ImportPath)
		i := slices.IndexFunc(layers, func(l layer) bool { return matches(l.pkg, name) })
		if i < 0 {
			if name != "" && !in([]string{"cmd/...", "e2e/...", "deploy/..."}, name) {
				t.Errorf("%s has no layer in arch_test.go: say what it may import", name)
			}
			continue
		}
		l := layers[i]
		imported[i] = append(imported[i], name)
		for _, imp := range p.Imports {
			switch {
			case strings.HasPrefix(imp, module):
				imported[i] = append(imported[i], folder(imp))
				if !in(l.ours, folder(imp)) {
					t.Errorf("%s must not import %s: %s", name, folder(imp), l.why)
				}
			case !strings.Contains(strings.Split(imp, "/")[0], "."):
				if l.std != nil && !slices.Contains(l.std, imp) {
					t.Errorf("%s must not import %s: %s", name, imp, l.why)
				}
			default:
				o := slices.IndexFunc(l.others, func(o string) bool { return strings.HasPrefix(imp, o) })
				if o < 0 {
					t.Errorf("%s must not import %s: %s", name, imp, l.why)
					continue
				}
				imported[i] = append(imported[i], l.others[o])
			}
		}
	}
	for i, l := range layers {
		stale(t, "layers: "+l.pkg, append(append([]string{l.pkg}, l.ours...), l.others...), imported[i])
	}
}

// TestProcessesAreStartedByOnePackage: a process that is started beside a worker by other means may
// get the worker's mark, and end with it.
func TestProcessesAreStartedByOnePackage(t *testing.T) {
	const one = module + "/internal/spawn"
	for _, p := range packages(t) {
		if in([]string{"internal/spawn", "e2e/...", "collective/nccl/nccltest"}, folder(p.ImportPath)) {
			continue // the rigs and the compiler of the fake NCCL run no workers of an agent
		}
		if slices.Contains(p.Imports, "os/exec") && !slices.Contains(p.Imports, one) {
			t.Errorf("%s imports os/exec: it must start processes with %s", folder(p.ImportPath), one)
		}
	}
}

// TestCommandStaysStatic: purego would make the static binary dynamic, so NCCL lives in workers.
func TestCommandStaysStatic(t *testing.T) {
	without := append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	list := exec.Command("go", "list", "-deps", "./cmd/regroup")
	list.Env = without
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range strings.Fields(string(out)) {
		if strings.Contains(dep, "purego") || strings.HasSuffix(dep, "collective/nccl") {
			t.Errorf("cmd/regroup depends on %s", dep)
		}
		if dep == "testing" {
			t.Error("cmd/regroup depends on testing: a package for tests has got into it")
		}
	}
	binary := filepath.Join(t.TempDir(), "regroup")
	build := exec.Command("go", "build", "-o", binary, "./cmd/regroup")
	build.Env = without
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	if err != nil || len(libraries) > 0 {
		t.Errorf("bin/regroup needs %v, or: %v", libraries, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("bin/regroup asks for a loader of dynamic libraries")
		}
	}
}

// TestSource checks what the syntax tree shows.
func TestSource(t *testing.T) {
	var names, begins []string
	for _, p := range packages(t) {
		name := folder(p.ImportPath)
		names = append(names, name)
		lines, files := 0, slices.Concat(p.GoFiles, p.CgoFiles)
		for _, file := range files {
			b, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			lines += strings.Count(string(b), "\n")
		}
		switch n, over := len(files), len(files) > maxFiles || lines > maxLines; {
		case over && large[name] == "":
			t.Errorf("%s has %d files and %d lines, at most %d and %d: split it by question, or say in large why not", name, n, lines, maxFiles, maxLines)
		case !over && large[name] != "":
			t.Errorf("%s has %d files and %d lines: it needs no reason in large", name, n, lines)
		}
		if slices.Contains(bannedNames, path.Base(name)) {
			t.Errorf("%s: the name says nothing", name)
		}
		comments := 0
		for _, file := range p.GoFiles {
			full := filepath.Join(p.Dir, file)
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, full, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				comments++
			}
			if checkSyntax(t, name, file, fset, f) {
				begins = append(begins, name)
			}
		}
		if len(p.GoFiles) > 0 && comments != 1 {
			t.Errorf("%s has %d package comments, want one", name, comments)
		}
	}
	stale(t, "concurrent", concurrent, begins)
	stale(t, "pure", pure, names)
	stale(t, "large", slices.Collect(maps.Keys(large)), names)
}

// checkSyntax checks one file, and tells whether it begins a goroutine.
func checkSyntax(t *testing.T, name, file string, fset *token.FileSet, f *ast.File) (begins bool) {
	isPure, mayBegin := slices.Contains(pure, name), in(concurrent, name)
	ast.Inspect(f, func(n ast.Node) bool {
		at := func() string { return name + "/" + file + ":" + fset.Position(n.Pos()).String() }
		switch x := n.(type) {
		case *ast.GoStmt:
			if begins = true; !mayBegin {
				t.Errorf("%s: a go statement outside the packages where concurrency lives", at())
			}
		case *ast.CallExpr:
			fun, ok := x.Fun.(*ast.SelectorExpr)
			if !ok || (fun.Sel.Name != "Go" && fun.Sel.Name != "AfterFunc") {
				break
			}
			if begins = true; !mayBegin {
				t.Errorf("%s: %s begins a goroutine outside the packages where concurrency lives", at(), fun.Sel.Name)
			}
		case *ast.ChanType:
			if isPure {
				t.Errorf("%s: a channel in a pure package", at())
			}
		case *ast.FuncDecl:
			if x.Recv == nil && x.Name.Name == "init" {
				t.Errorf("%s: func init hides order", at())
			}
		case *ast.SelectorExpr:
			id, ok := x.X.(*ast.Ident)
			if isPure && ok && id.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "Tick", "NewTimer", "NewTicker", "AfterFunc"}, x.Sel.Name) {
				t.Errorf("%s: time.%s in a pure package: the time is an argument", at(), x.Sel.Name)
			}
		}
		return true
	})
	return begins
}

// TestSizes keeps the file where everything lives from forming, and comments readable.
func TestSizes(t *testing.T) {
	err := filepath.WalkDir(".", func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != "." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		limit := maxFile
		if strings.HasSuffix(p, "_test.go") {
			limit = maxTestFile
		}
		if n := strings.Count(string(b), "\n"); n > limit {
			t.Errorf("%s has %d lines, at most %d: split it by question", p, n, limit)
		}
		if bytes.Contains(b, []byte("DO NOT EDIT")) {
			return nil
		}
		for i, line := range strings.Split(string(b), "\n") {
			comment := strings.HasPrefix(strings.TrimLeft(line, "\t"), "// ")
			if n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")); comment && n > maxComment {
				t.Errorf("%s:%d: a comment of %d columns, at most %d", p, i+1, n, maxComment)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDependencies: docs/dependencies.md has one row for each module that go.mod requires directly,
// with a reason.
func TestDependencies(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	for line := range strings.Lines(string(doc)) {
		if cells := strings.Split(strings.TrimSpace(line), " | "); len(cells) == 2 {
			reasons[strings.TrimPrefix(cells[0], "| ")] = strings.TrimSuffix(cells[1], " |")
		}
	}
	delete(reasons, "module")
	for line := range strings.Lines(string(mod)) {
		name, version, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || !strings.HasPrefix(version, "v") || strings.Contains(line, "// indirect") {
			continue
		}
		if reasons[name] == "" {
			t.Errorf("docs/dependencies.md has no reason for %s", name)
		}
		delete(reasons, name)
	}
	for name := range reasons {
		t.Errorf("docs/dependencies.md has a row for %s, which go.mod does not require", name)
	}
}
