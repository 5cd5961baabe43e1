package local

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	processes "github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/ledger"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/race"
	"github.com/regroup-io/regroup/jetstream"
)

// binaries are built once per test run; with the race detector if the tests have it.
var binaries string

// together is how many of the tests that wait most of their time run at once.
const together = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", together); err != nil {
		panic(err)
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "regroup-e2e-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if err := processes.Build(dir, race.Enabled, "cmd/regroup", "examples/counter", "examples/mnist"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		binaries = dir
		return m.Run()
	}())
}

func bin(name string) string { return filepath.Join(binaries, name) }

// cluster is a broker, services and agents as separate processes.
type cluster struct {
	t      *testing.T
	dir    string
	url    string
	procs  processes.Processes
	ports  broker.Ports
	agents map[string]bool        // nodes whose agents were started here and run
	env    []string               // of all processes, beside that of the test
	unread atomic.Pointer[error]  // why the last view could not be read; nil = it could
	mayEnd map[ident.JobID]string // the files that jobs wait for before they end, see counts
}

// newCluster starts one broker; the test starts the rest.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := empty(t)
	address := freeAddress(t)
	c.url = "nats://" + address
	c.start("nats", "serve", "nats", "--listen", address, "--state-dir", filepath.Join(c.dir, "nats"))
	c.ports = connect(t, c.url)
	return c
}

// connect returns the ports of a connection that ends with the test.
func connect(t *testing.T, url string) broker.Ports {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := jetstream.Connect(ctx, jetstream.ConnectOptions{URL: url, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn.Ports()
}

// services starts replicas of all four services.
func (c *cluster) services(replicas int) {
	for _, s := range events.ServiceNames() {
		for r := range replicas {
			c.start(fmt.Sprintf("%s-%d", s, r), "serve", s, "--server", c.url)
		}
	}
}

func (c *cluster) agent(node string, slots int, more ...string) {
	c.start(node, append([]string{
		"agent", "--server", c.url, "--node", node, "--slots", fmt.Sprint(slots), "--advertise", "127.0.0.1",
		"--state-dir", filepath.Join(c.dir, node),
	}, more...)...)
	c.agents[node] = true
}

// empty is a cluster without a process; it ends with the test.
func empty(t *testing.T) *cluster {
	t.Helper()
	dir := t.TempDir()
	c := &cluster{t: t, dir: dir, procs: processes.Processes{Dir: dir}, agents: map[string]bool{}, mayEnd: map[ident.JobID]string{}}
	t.Cleanup(c.stop)
	return c
}

func (c *cluster) start(name string, args ...string) {
	c.t.Helper()
	if err := c.procs.Start(processes.Command{Name: name, Args: append([]string{bin("regroup")}, args...), Env: c.env}); err != nil {
		c.t.Fatal(err)
	}
}

// kill ends a process as a power failure would.
func (c *cluster) kill(name string) {
	c.t.Helper()
	if err := c.procs.Kill(name); err != nil {
		c.t.Fatal(err)
	}
	if c.agents[name] {
		c.agents[name] = false
	}
}

// restart restarts a killed process, with its old data.
func (c *cluster) restart(name string) {
	c.t.Helper()
	if err := c.procs.Restart(name); err != nil {
		c.t.Fatal(err)
	}
	if _, isNode := c.agents[name]; isNode {
		c.agents[name] = true
	}
}

// stop ends everything and, if the test has failed, shows the logs, and what the services did. A
// data race in any process fails the test.
func (c *cluster) stop() {
	did := c.doing()
	c.procs.Stop(15 * time.Second)
	for _, name := range c.procs.Races() {
		c.t.Errorf("%s: data race:\n%s", name, c.procs.Log(name, 20000))
	}
	if !c.t.Failed() {
		return
	}
	for _, name := range c.procs.Names() {
		c.t.Logf("--- %s ---\n%s", name, cmp.Or(did[name], string(c.procs.Log(name, 4000))))
	}
}

// doing returns, after a test has failed, the end of the log of each service that runs and what its
// goroutines do, by its name. It ends them.
func (c *cluster) doing() map[string]string {
	all := map[string]string{}
	if !c.t.Failed() {
		return all
	}
	for _, name := range c.procs.Names() {
		service, _, _ := strings.Cut(name, "-")
		if !slices.Contains(events.ServiceNames(), service) || !c.procs.Running(name) {
			continue
		}
		log := c.procs.Log(name, 4000)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		stacks, err := c.procs.Stacks(ctx, name)
		cancel()
		if err != nil {
			stacks = err.Error()
		}
		all[name] = fmt.Sprintf("%s\n%s", log, stacks)
	}
	return all
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// cli runs a command of the binary against the cluster.
func (c *cluster) cli(args ...string) (stdout, stderr string, code int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin("regroup"), args...)
	cmd.Env = append(append(os.Environ(), "REGROUP_SERVER="+c.url, "REGROUP_TIMEOUT="+(2*atOnce).String(), "NO_COLOR=1"), c.env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatalf("regroup %v: %v", args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// submit submits a job after every running agent is registered, and returns its id.
func (c *cluster) submit(args ...string) ident.JobID {
	c.t.Helper()
	for node, runs := range c.agents {
		if runs {
			c.nodes(patience, ident.NodeID(node))
		}
	}
	out, errs, code := c.cli(append([]string{"submit"}, args...)...)
	if code != 0 {
		c.t.Fatalf("submit exits %d: %s", code, errs)
	}
	id := ident.JobID(strings.TrimSpace(out))
	if i := slices.Index(args, "-until"); i >= 0 {
		c.mayEnd[id] = args[i+1]
	}
	return id
}

// counter is the command line of an SDK job of many small steps.
func counter(steps int) []string {
	return []string{"--recovery", "in-process", "--", bin("counter"), "-steps", fmt.Sprint(steps), "-step-time", "5ms", "-samples", "6000", "-batch", "60"}
}

// counts is a counter that trains until the test waits for its end, however slow the machine is.
func (c *cluster) counts(steps int) []string {
	return append(counter(steps), "-until", filepath.Join(c.dir, fmt.Sprint("may-end-", len(c.mayEnd))))
}

// job reads the registry's view.
func (c *cluster) job(id ident.JobID) events.JobView {
	return view[events.JobView](c, events.BucketJobs, string(id))
}

// node reads discovery's view.
func (c *cluster) node(id ident.NodeID) events.NodeView {
	return view[events.NodeView](c, events.BucketNodes, string(id))
}

// nodes waits until nodes are ready.
func (c *cluster) nodes(limit time.Duration, nodes ...ident.NodeID) {
	c.t.Helper()
	eventually(c.t, limit, func() (bool, string) {
		for _, n := range nodes {
			if v := c.node(n); v.State != events.NodeStateReady {
				return false, fmt.Sprintf("%s is %q%s", n, v.State, c.unreadable())
			}
		}
		return true, ""
	})
}

// view reads a service's view of an entity; the zero value while it is unavailable.
func view[V any](c *cluster, bucket, key string) V {
	var v V
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), 5*time.Second)
	defer cancel()
	b, _, err := c.ports.Buckets.Bucket(bucket).Load(ctx, key)
	if err != nil {
		c.unread.Store(&err)
		return v
	}
	c.unread.Store(nil)
	if v, err = document.View[V](b); err != nil {
		c.t.Fatal(err)
	}
	return v
}

// unreadable says why the last view could not be read.
func (c *cluster) unreadable() string {
	if err := c.unread.Load(); err != nil {
		return fmt.Sprintf(" (the last view cannot be read: %v)", *err)
	}
	return ""
}

// until waits for a condition of a job, evaluated only when its view is available: a leader
// election may be under way.
func (c *cluster) until(id ident.JobID, limit time.Duration, what string, ok func(events.JobView) bool) events.JobView {
	c.t.Helper()
	var v events.JobView
	eventually(c.t, limit, func() (bool, string) {
		v = c.job(id)
		return v.Job == id && ok(v), fmt.Sprintf("%s: waiting until %s; it is %s (%s), generation %s%s", id, what, v.State, v.Reason, v.Generation, c.unreadable())
	})
	return v
}

// ends waits for the end of a job and checks that it succeeded with every sample consumed exactly
// once. A job that makes steps may take as long as the machine needs: limit is the longest time
// without a new step or generation.
func (c *cluster) ends(id ident.JobID, limit time.Duration) summary {
	c.t.Helper()
	if file := c.mayEnd[id]; file != "" {
		touch(c.t, file)
	}
	for ended := false; !ended; {
		before := c.job(id)
		c.until(id, limit, fmt.Sprintf("it ends or passes step %d", before.Step), func(v events.JobView) bool {
			ended = v.State.Terminal()
			return ended || v.Step > before.Step || v.Generation > before.Generation
		})
	}
	s := c.summary(id)
	if s.Outcome != "succeeded" {
		c.t.Errorf("%s: outcome %s (%s), want succeeded", id, s.Outcome, c.job(id).Reason)
	}
	if s.Samples != nil && (s.Samples.Missing != 0 || s.Samples.Repeated != 0) {
		c.t.Errorf("%s: samples missing %d, repeated %d, want none", id, s.Samples.Missing, s.Samples.Repeated)
	}
	if s.Samples != nil {
		c.audit(id)
	}
	return s
}

// audit proves the same from the output of `regroup status JOB -o json`, with independent code. All
// programs here use the sample order of seed 1.
func (c *cluster) audit(id ident.JobID) {
	c.t.Helper()
	seed := uint64(1)
	out, errs, code := c.cli("status", string(id), "-o", "json")
	l, err := ledger.Read(strings.NewReader(out))
	if err != nil || code != 0 {
		c.t.Errorf("status exits %d: %s: %v", code, errs, err)
		return
	}
	if a, err := l.Check(&seed); err != nil || a.Missing+a.Repeated > 0 {
		c.t.Errorf("%s: the ledger proves %+v: %v", id, a, err)
	}
}

// summary is the output of `regroup status JOB -o summary`.
type summary struct {
	Job         string
	Outcome     string
	Steps       uint64
	Generations []struct {
		Generation uint64
		World      int
		Cause      string
		Members    []struct {
			Node        string
			Slot, Rank  int
			PID         int `json:"pid"`
			Incarnation string
		}
	}
	Incidents []struct {
		ID      int
		Cause   string
		From    uint64             `json:"from_generation"`
		To      uint64             `json:"to_generation"`
		Phases  map[string]float64 `json:"phases_ms"`
		Total   float64            `json:"total_ms"`
		TraceID string             `json:"trace_id"`
	}
	Samples *struct {
		Epochs, Missing, Repeated uint64
		PerEpoch                  uint64 `json:"per_epoch"`
	}
	Metrics map[string]float64
}

func (c *cluster) summary(id ident.JobID) summary {
	c.t.Helper()
	out, errs, code := c.cli("status", string(id), "-o", "summary")
	if code != 0 {
		c.t.Fatalf("status exits %d: %s", code, errs)
	}
	return parseSummary(c.t, out)
}

func parseSummary(t *testing.T, out string) summary {
	t.Helper()
	var s summary
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatalf("summary: %v in %s", err, out)
	}
	return s
}

// patience is how long tests wait for what comes within seconds on an idle machine. On a busy one
// a process can be without a processor for so long that its connection counts as dead.
const patience = 3 * time.Minute

// eventually polls a condition of other processes.
func eventually(t *testing.T, limit time.Duration, ok func() (bool, string)) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(limit)
	for {
		good, why := ok()
		if good {
			return
		}
		select {
		case <-end:
			t.Fatalf("after %s: %s", limit, why)
		case <-tick.C:
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	a, err := processes.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return a
}
