package sim

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
)

var (
	seeds = flag.Int("seeds", 0, "how many seeds to run; 0 = 100")
	seed  = flag.Int64("seed", -1, "run this one only, and print its log with -v")
	first = flag.Int("first", 0, "first seed")
	play  = flag.String("play", "", "a file that a failing seed has left: play it, and print its log with -v")
)

// TestSeeds runs seeds; each is one goroutine in virtual time.
func TestSeeds(t *testing.T) {
	output := func(line string) { t.Log(line) }
	if *play != "" {
		text, err := os.ReadFile(*play)
		if err != nil {
			t.Fatal(err)
		}
		sc, err := parse(string(text))
		if err != nil {
			t.Fatal(err)
		}
		if v := run(sc, mutation{}, output); v != nil {
			t.Error(v)
		}
		return
	}
	if *seed >= 0 {
		one(t, uint64(*seed), output)
		return
	}
	n := *seeds
	if n == 0 {
		n = 100
	}
	var faults atomic.Int64
	t.Cleanup(func() { // after the parallel tests
		t.Logf("%d seeds with %d faults against invariants 0 to %d", n, faults.Load(), len(invariants)-1)
	})
	for i := range n {
		s := uint64(*first + i)
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			t.Parallel()
			faults.Add(int64(one(t, s, nil)))
		})
	}
}

// one runs a seed and returns the number of its faults. A failing scenario is shortened and written
// to a file.
func one(t *testing.T, s uint64, output func(string)) int {
	t.Helper()
	sc := draw(s)
	v := run(sc, mutation{}, output)
	if v == nil {
		return len(sc.faults)
	}
	less := shrink(sc, mutation{}, v.number)
	t.Errorf("seed %d: %s\n%d of %d faults are enough for it: go test ./e2e/sim -run TestSeeds -v -play %s\n%s",
		s, v, len(less.faults), len(sc.faults), leave(t, s, v, less), script(less))
	return len(sc.faults)
}

// leave writes a failing scenario to a file for -play. In testdata/regressions every run plays it.
func leave(t *testing.T, s uint64, v *violation, sc scenario) string {
	t.Helper()
	file := filepath.Join(os.TempDir(), "regroup-sim", fmt.Sprintf("seed-%d.txt", s))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(fmt.Sprintf("# %s\n%s", v, script(sc))), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestAFailingSeedLeavesAShortFile breaks a machine, shortens the failing scenario, and plays the
// file.
func TestAFailingSeedLeavesAShortFile(t *testing.T) {
	m := mutations[len(mutations)-1]
	for s := m.from; s < m.from+300; s++ {
		sc := draw(s)
		v := run(sc, m.mutation, nil)
		if v == nil || len(sc.faults) < 4 {
			continue
		}
		file := leave(t, s, v, shrink(sc, m.mutation, v.number))
		t.Cleanup(func() { _ = os.Remove(file) })
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		less, err := parse(string(text))
		if err != nil {
			t.Fatal(err)
		}
		if again := run(less, m.mutation, nil); again == nil || again.number != v.number || len(less.faults) >= len(sc.faults) {
			t.Errorf("of %d faults %d are left, and they lead to %v instead of %v", len(sc.faults), len(less.faults), again, v)
		}
		return
	}
	t.Errorf("%s: no seed fails", m.name)
}
