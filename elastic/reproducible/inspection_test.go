package reproducible

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/internal/errorreport"
)

// TestDuties: each micro-batch, and each rank as the witness of each other one, has its turn.
func TestDuties(t *testing.T) {
	shares := []int{3, 1, 0, 2}
	owners := []int{0, 0, 0, 1, 3, 3}
	seen := map[duty]bool{}
	for step := range uint64(400) {
		for count := range 8 {
			found := duties(step, shares, count)
			if len(found) != min(count, 6) {
				t.Fatalf("step %d: %v, want %d", step, found, count)
			}
			var ms []int
			for _, d := range found {
				if d.owner != owners[d.m] || d.witness == d.owner || d.witness < 0 || d.witness > 3 || slices.Contains(ms, d.m) {
					t.Fatalf("step %d: %v", step, found)
				}
				ms = append(ms, d.m)
				if count == 1 {
					seen[d] = true
				}
			}
		}
	}
	if len(seen) != 6*3 {
		t.Errorf("%d of 18 have had their turn: %v", len(seen), seen)
	}
	if alone := duties(0, []int{4}, 2); len(alone) != 0 {
		t.Errorf("one rank has the duties %v", alone)
	}
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		first        map[int]uint64
		second       []uint64
		always, once []int
		ok           bool
	}{
		{map[int]uint64{0: 7, 2: 7}, []uint64{7, 7, 7}, nil, nil, true},
		{map[int]uint64{0: 7, 2: 8}, []uint64{7, 7, 8}, []int{2}, nil, true},
		{map[int]uint64{0: 7, 2: 8}, []uint64{7, 7, 7}, nil, []int{2}, true},
		{map[int]uint64{0: 9, 2: 8}, []uint64{7, 7, 9}, []int{2}, []int{0}, true},
		{map[int]uint64{0: 7, 1: 8}, []uint64{7, 8}, nil, nil, false},
		{map[int]uint64{0: 7, 1: 8}, []uint64{8, 8}, nil, []int{0}, true},
		{map[int]uint64{1: notFinite}, []uint64{8, 8, 8}, nil, []int{1}, true},
		{nil, []uint64{7, 7, 8, 8}, nil, nil, false},
	} {
		v, ok := decide(c.first, c.second)
		if ok != c.ok || !slices.Equal(v.always, c.always) || !slices.Equal(v.once, c.once) {
			t.Errorf("%v, then %v: %+v, %t", c.first, c.second, v, ok)
		}
	}
}

// TestWitnessesChangeNothing but how often a micro-batch is computed.
func TestWitnessesChangeNothing(t *testing.T) {
	want := alone(t, usual)
	for _, witness := range []int{1, 3, 99} {
		for _, n := range []int{2, 3, 7} {
			p := usual
			p.witness = witness
			got := newFleet(t, &p, n).run()
			same(t, want, got)
			calls := 0
			for _, w := range got {
				calls += len(w.calls)
			}
			again := 0
			for step := range want.means {
				count := 0
				for _, c := range want.calls {
					if c.step == uint64(step) {
						count = max(count, c.m+1)
					}
				}
				again += min(witness, count)
			}
			if calls-len(want.calls) != again {
				t.Errorf("%d ranks, %d witnesses: %d more calls, want %d", n, witness, calls-len(want.calls), again)
			}
		}
	}
}

func flip(v *float32) { *v = math.Float32frombits(math.Float32bits(*v) ^ 1) }

// wrong trains with n workers of which w1 is wrong from step 2 on, in a single bit, and only once
// if it says so. With as many witnesses as micro-batches nothing that is wrong is used.
func wrong(t *testing.T, n int, once bool, fails func(error) bool) (completed, all []*worker) {
	t.Helper()
	p := usual
	p.witness, p.fails = 99, fails
	done := false
	p.gradient = func(w *worker, step uint64, m int, _ []int, mean []float32) {
		if w.name == "w1" && step >= 2 && !(once && done) {
			done = true
			flip(&mean[11])
		}
	}
	f := newFleet(t, &p, n)
	return f.run(), f.workers
}

// TestARankThatComputesWrongly gets ErrCorrupt, and the others end with the weights of one worker.
func TestARankThatComputesWrongly(t *testing.T) {
	want := alone(t, usual)
	for _, once := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "error.json")
		t.Setenv(errorreport.Env, path)
		completed, all := wrong(t, 3, once, func(err error) bool { return errors.Is(err, ErrCorrupt) })
		same(t, want, completed)
		if len(completed) != 2 {
			t.Errorf("%d have completed the training", len(completed))
		}
		for _, w := range all {
			if errors.Is(w.err, ErrCorrupt) != (w.name == "w1") {
				t.Errorf("%s: %v", w.name, w.err)
			}
			if w.name == "w1" && (!strings.Contains(w.err.Error(), "of step 2 than 2 others") || strings.Contains(w.err.Error(), "did not repeat") != once) {
				t.Errorf("once %t: %v", once, w.err)
			}
		}
		var report struct {
			Message struct{ Message string }
		}
		b, err := os.ReadFile(path)
		if err = errors.Join(err, json.Unmarshal(b, &report)); err != nil || !strings.HasPrefix(report.Message.Message, "reproducible.SilentCorruptionError: rank 1 has another result for micro-batch ") {
			t.Errorf("the error file: %s, %v", b, err)
		}
	}
}

// TestOfTwoRanks the one is found that does not repeat its result; else both end.
func TestOfTwoRanks(t *testing.T) {
	completed, all := wrong(t, 2, true, func(err error) bool { return errors.Is(err, ErrCorrupt) })
	same(t, alone(t, usual), completed)
	if len(completed) != 1 || completed[0].name != "w0" || !errors.Is(all[1].err, ErrCorrupt) {
		t.Errorf("%d have completed the training, w1: %v", len(completed), all[1].err)
	}
	unknown := func(err error) bool {
		return err != nil && !errors.Is(err, ErrCorrupt) && strings.Contains(err.Error(), "the ranks disagree on micro-batch")
	}
	completed, all = wrong(t, 2, false, unknown)
	if len(completed) != 0 || !slices.ContainsFunc(all, func(w *worker) bool { return unknown(w.err) }) {
		t.Errorf("%d have completed the training, w0: %v, w1: %v", len(completed), all[0].err, all[1].err)
	}
}

// TestWhatIsNotFinite on one rank alone is its fault; what is not finite on all is nobody's.
func TestWhatIsNotFinite(t *testing.T) {
	for _, everywhere := range []bool{true, false} {
		p := usual
		p.witness = 1
		p.fails = func(err error) bool { return errors.Is(err, ErrCorrupt) }
		p.gradient = func(w *worker, step uint64, m int, _ []int, mean []float32) {
			if step == 3 && (everywhere && m < 4 || !everywhere && w.name == "w2") {
				mean[5] = float32(math.Inf(1))
			}
		}
		q := p
		if !everywhere {
			q = usual
		}
		f := newFleet(t, &p, 3)
		completed := f.run()
		same(t, alone(t, q), completed)
		for _, w := range f.workers {
			if errors.Is(w.err, ErrCorrupt) != (!everywhere && w.name == "w2") {
				t.Errorf("everywhere %t, %s: %v", everywhere, w.name, w.err)
			}
		}
	}
}

func TestWitnessesOfNothing(t *testing.T) {
	p := usual
	p.witness = -1
	p.fails = func(err error) bool { return strings.Contains(err.Error(), "want 0 or more") }
	if got := newFleet(t, &p, 2).run(); len(got) != 0 {
		t.Errorf("%d complete the training", len(got))
	}
}
