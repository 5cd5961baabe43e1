package figures

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestAnyFleet: in any fleet of one model at least half of the GPUs are as good as others, whatever
// was measured. The order of the fleet does not matter, a GPU that has become faster is not judged
// worse, and one that is the only one of its model is not judged at all.
func TestAnyFleet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(1, 1000), 1, 12).Draw(t, "figures")
		all := fleet(values...)
		for i := range all {
			if rapid.IntRange(0, 9).Draw(t, "fails") == 0 {
				all[i].Failure = "wrong results"
			}
		}
		slow, working := 0, 0
		for i, g := range all {
			why := g.Unfit(all)
			if g.Failure != "" {
				if why != g.Failure {
					t.Fatalf("%+v is judged %q", g, why)
				}
				continue
			}
			if working++; g.Compare(all)[0].Slow {
				slow++
			}
			mixed := slices.Clone(all)
			slices.Reverse(mixed)
			if again := g.Unfit(mixed); again != why {
				t.Fatalf("in another order %q is %q", why, again)
			}
			faster := g
			faster.MatmulTFLOPS *= 2
			if faster.Compare(all)[0].Slow && !g.Compare(all)[0].Slow {
				t.Fatalf("GPU %d of %v is slow when it is faster", i, values)
			}
			other := slices.Clone(all)
			for j := range other {
				other[j].Model = fmt.Sprint("model ", j)
			}
			if why := other[i].Unfit(other); why != "" {
				t.Fatalf("a GPU that is the only one of its model is judged %q", why)
			}
		}
		if 2*slow > working {
			t.Fatalf("%d of %d are slow: %v", slow, working, values)
		}
	})
}
