package main

import (
	"flag"
	"reflect"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/record"
	"github.com/regroup-io/regroup/internal/race"
)

var (
	seed      = flag.Uint64("seed", 1, "of the faults")
	faults    = flag.Int("faults", 15, "how many")
	histories = flag.Int("histories", 1, "reproducible jobs")
)

// TestChaos is a short run; `make chaos` is the long one.
func TestChaos(t *testing.T) {
	bin := t.TempDir()
	if err := cluster.Build(bin, race.Enabled, "cmd/regroup", "e2e/recorder"); err != nil {
		t.Fatal(err)
	}
	r, err := unleash(t.Context(), bin, parameters{seed: *seed, faults: *faults}, t.Output())
	if err != nil {
		t.Fatalf("-seed %d: %v", *seed, err)
	}
	t.Log("\n" + r.markdown())
}

func TestASeedGivesTheSameFaults(t *testing.T) {
	names := func(seed uint64) (out []any) {
		for _, f := range schedule(seed, 300) {
			out = append(out, []any{f.kind.name, f.target, f.other, f.hold, f.rush})
		}
		return out
	}
	if !reflect.DeepEqual(names(7), names(7)) || reflect.DeepEqual(names(7), names(8)) {
		t.Error("the schedule does not follow its seed")
	}
	seen := map[string]bool{}
	for _, f := range schedule(7, 300) {
		seen[f.kind.name] = true
	}
	if len(seen) != len(kinds) {
		t.Errorf("300 faults are of %d kinds, want %d", len(seen), len(kinds))
	}
}

// TestTimesOfFaultsThatNeverCameAlone: they are not known, and not zero.
func TestTimesOfFaultsThatNeverCameAlone(t *testing.T) {
	r := result{history: &record.History{}, done: []happened{{kind: kinds[0].name, hit: "one", overlapped: true}}}
	if want := "| " + kinds[0].name + " | 1 | 1 | not seen | not seen | 0 |"; !strings.Contains(r.markdown(), want) {
		t.Errorf("the report does not have %q:\n%s", want, r.markdown())
	}
}

// TestSameWeights is a short run of `make chaos CHAOS='-histories 100'`.
func TestSameWeights(t *testing.T) {
	bin := t.TempDir()
	if err := cluster.Build(bin, race.Enabled, "cmd/regroup", "examples/mnist"); err != nil {
		t.Fatal(err)
	}
	w, err := sameWeights(t.Context(), bin, parameters{seed: *seed, workers: workers}, *histories, t.Output())
	if err != nil {
		t.Fatalf("-seed %d: %v", *seed, err)
	}
	t.Log("\n" + w.markdown())
}
