package network

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/report"
	"github.com/regroup-io/regroup/internal/race"
)

var reliability = flag.String("reliability", "", "Markdown document to write the results into, as a section of its own")

var history = flag.Bool("story", false, "show the facts of every case, not only of a failed one")

// binaries are built once per test run; with the race detector if the tests have it.
var binaries string

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(orphan) != "" {
		os.Exit(beOrphan())
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "regroup-network-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if err := cluster.Build(dir, race.Enabled, "cmd/regroup", "e2e/recorder"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		binaries = dir
		code := m.Run()
		if *reliability != "" && code == 0 {
			if err := report.Section(*reliability, report.Reliability, "Network faults", results.markdown()); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		return code
	}())
}

// datacenter builds a data centre that ends with the test. The logs of a failed one are shown; a
// data race in any process fails it.
func datacenter(t *testing.T) *Datacenter {
	t.Helper()
	return build(t, Options{})
}

func build(t *testing.T, o Options) *Datacenter {
	t.Helper()
	o.Bin, o.Dir, o.Nodes, o.Slots, o.Name = binaries, t.TempDir(), 4, 2, "network-test"
	c, err := Build(within(t, 3*time.Minute), o)
	must(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for _, name := range c.Processes.Races() {
			t.Errorf("%s: data race:\n%s", name, c.Processes.Log(name, 20000))
		}
		if t.Failed() {
			for _, name := range append(c.Processes.Names(), "client") {
				t.Logf("--- %s ---\n%s", name, c.Processes.Log(name, 3000))
			}
		}
	})
	return c
}
