package reproducible

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/regroup-io/regroup/elastic"
)

// checked trains with so many workers, which check their state after each step, and returns the
// hashes that they have found. With wrong they check it once, after step 4.
func checked(t *testing.T, n int, wrong func(w *worker, s *elastic.Session)) (hashes [][]string, errs []error) {
	t.Helper()
	p := usual
	var mu sync.Mutex
	p.at = func(w *worker, s *elastic.Session, where moment) {
		if where != beforeStep || s.Step() == 0 {
			return
		}
		if wrong != nil {
			if s.Step() != 4 {
				return
			}
			wrong(w, s)
		}
		hash, err := CheckState(context.Background(), s, map[string][]float32{"weights": w.weights, "velocity": w.velocity})
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
		for len(hashes) < int(s.Step()) {
			hashes = append(hashes, nil)
		}
		if err == nil {
			hashes[s.Step()-1] = append(hashes[s.Step()-1], hash)
		}
	}
	newFleet(t, &p, n).run()
	return hashes, errs
}

func TestStatesHaveOneHash(t *testing.T) {
	want, _ := checked(t, 1, nil)
	seen := map[string]bool{}
	for _, found := range want {
		seen[found[0]] = true
	}
	if len(seen) != len(want) || len(want) < 5 {
		t.Errorf("%d steps have %d hashes", len(want), len(seen))
	}
	got, errs := checked(t, 3, nil)
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	for i, found := range got {
		for _, h := range found {
			if len(found) != 3 || h != want[i][0] {
				t.Fatalf("after step %d: %q, want three times %s", i+1, found, want[i][0])
			}
		}
	}
}

// TestARankWithAnotherState is named, and no other one.
func TestARankWithAnotherState(t *testing.T) {
	flip := func(w *worker, s *elastic.Session) {
		if s.Rank == 1 {
			w.velocity[7] = math.Float32frombits(math.Float32bits(w.velocity[7]) ^ 1)
		}
	}
	for n, want := range map[int]string{3: "rank 1 has another state after step 4 than 2 others", 2: "no majority says who is right"} {
		_, errs := checked(t, n, flip)
		corrupt, others := 0, 0
		for _, err := range errs {
			switch {
			case err == nil:
			case strings.Contains(err.Error(), want):
				corrupt++
			default:
				others++
			}
			if err != nil && errors.Is(err, ErrCorrupt) != (n == 3) {
				t.Errorf("%d ranks: %v", n, err)
			}
		}
		if corrupt == 0 || others > 0 {
			t.Errorf("%d ranks: %d say %q, %d something else: %v", n, corrupt, want, others, errs)
		}
	}
}

func TestHashesOfTensors(t *testing.T) {
	one, each := hashOf(map[string][]float32{"a": {1, 2}, "b": {3}})
	if len(one) != 32 || len(each["a"]) != 16 || each["a"] == each["b"] {
		t.Errorf("%q %q", one, each)
	}
	for name, other := range map[string]map[string][]float32{
		"another bit":  {"a": {1, 2}, "b": {math.Float32frombits(math.Float32bits(3) ^ 1)}},
		"other names":  {"a": {1, 2}, "c": {3}},
		"another sign": {"a": {1, 2}, "b": {-3}},
	} {
		if h, _ := hashOf(other); h == one {
			t.Errorf("%s: the same hash", name)
		}
	}
}
